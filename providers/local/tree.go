//go:build linux || darwin

package local

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"strconv"
)

const (
	// treeDepth is how far removal descends, a descriptor for each level. What
	// is deeper is moved up first.
	treeDepth = 64
	treeBatch = 1024
)

// removeTree removes name from root and everything below it: read-only directories too, at
// any depth, following no link. What is not there is fine.
func removeTree(root *os.Root, name string) error {
	info, err := root.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil && info.IsDir() {
		var top *os.Root
		if top, err = openDir(root, name); err == nil {
			r := removal{top: top}
			err = r.empty(top, ".", 0)
			top.Close()
		}
	}
	if err != nil {
		return err
	}
	if err := root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// openDir opens a directory that may be closed to its owner.
func openDir(parent *os.Root, name string) (*os.Root, error) {
	if err := parent.Chmod(name, 0o700); err != nil && !errors.Is(err, fs.ErrPermission) {
		return nil, err
	}
	return openSubdirectory(parent, name)
}

type removal struct {
	top   *os.Root
	moved int
}

// empty removes what is in dir, which is at that path and depth below top. It goes on
// after a failure and returns the first.
func (r *removal) empty(dir *os.Root, at string, depth int) error {
	for {
		entries, err := readBatch(dir)
		if err != nil || len(entries) == 0 {
			return err
		}
		var failed error
		for _, entry := range entries {
			if err := r.removeEntry(dir, at, depth, entry); err != nil && !errors.Is(err, fs.ErrNotExist) && failed == nil {
				failed = err
			}
		}
		if failed != nil {
			return failed
		}
	}
}

func (r *removal) removeEntry(dir *os.Root, at string, depth int, entry fs.DirEntry) error {
	name := entry.Name()
	if entry.IsDir() {
		sub, err := openDir(dir, name)
		if err != nil {
			return err
		}
		defer sub.Close()
		if depth == treeDepth {
			r.moved++
			return r.top.Rename(path.Join(at, name), "moved-"+strconv.Itoa(r.moved)+"-"+randomHex(8))
		}
		if err := r.empty(sub, path.Join(at, name), depth+1); err != nil {
			return err
		}
	}
	return dir.Remove(name)
}

// readBatch reads the directory anew each time: reading on while entries vanish may skip some.
func readBatch(dir *os.Root) ([]fs.DirEntry, error) {
	f, err := dir.Open(".")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	entries, err := f.ReadDir(treeBatch)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return entries, err
}
