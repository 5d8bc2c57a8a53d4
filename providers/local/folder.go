//go:build linux || darwin

package local

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// The directories of a workspace's folder. The model sees work; staging, where files are written
// before they are renamed into place, is beside it so that no list or diff shows it.
const (
	workDir    = "work"
	homeDir    = "home"
	tmpDir     = "tmp"
	stagingDir = "staging"
)

// A folder is what a workspace is on disk.
type folder struct {
	root string // absolute, without links
	id   string
	path string // root/id

	label *os.File // open, and locked, while the workspace lives
	base  *os.Root // path
	work  *os.Root // path/work
}

// newFolder makes the folder that l describes: all of it, or nothing.
func newFolder(root string, l label) (_ *folder, err error) {
	f := &folder{root: root, id: l.Workspace, path: filepath.Join(root, l.Workspace)}
	if f.label, err = writeLabel(root, l); err != nil {
		return nil, fmt.Errorf("label workspace %s: %w", f.id, err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("make the folder of workspace %s: %w", f.id, err), f.remove())
		}
	}()
	for _, dir := range []string{"", workDir, homeDir, tmpDir, stagingDir} {
		if err := os.Mkdir(filepath.Join(f.path, dir), 0o700); err != nil {
			return nil, err
		}
	}
	if f.base, err = os.OpenRoot(f.path); err != nil {
		return nil, err
	}
	f.work, err = f.base.OpenRoot(workDir)
	return f, err
}

// dir is the workspace's own directory.
func (f *folder) dir() string { return filepath.Join(f.path, workDir) }

// remove removes the folder, its label last. After a failure it can be called again.
func (f *folder) remove() error {
	if _, err := removeFolder(f.root, f.id); err != nil {
		return fmt.Errorf("remove the folder of workspace %s: %w", f.id, err)
	}
	if f.work != nil {
		f.work.Close()
	}
	if f.base != nil {
		f.base.Close()
	}
	f.label.Close()
	return nil
}

// removeFolder removes a folder and its label, and says whether it was the one that did. What is
// not there is fine.
func removeFolder(root, id string) (removed bool, err error) {
	r, err := os.OpenRoot(root)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer r.Close()
	if err := removeTree(r, id); err != nil {
		return false, err
	}
	err = r.Remove(id + labelSuffix)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}
