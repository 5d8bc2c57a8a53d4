//go:build linux || darwin

package local

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"syscall"

	"github.com/carrel-dev/carrel/workspaces"
)

const newFileMode = 0o644

// ReadFile returns a regular file. See workspaces.Workspace.
func (w *Workspace) ReadFile(ctx context.Context, path string) ([]byte, error) {
	if err := w.enter(ctx); err != nil {
		return nil, err
	}
	defer w.calls.leave()
	var data []byte
	err := steadily(func() (err error) {
		data, err = w.read(path)
		return err
	})
	if err != nil {
		return nil, w.orGone(err)
	}
	return data, nil
}

func (w *Workspace) read(path string) ([]byte, error) {
	p, err := w.locate(path)
	if err != nil {
		return nil, err
	}
	defer p.close()
	if p.info == nil {
		return nil, fmt.Errorf("read %.200q: %w", path, fs.ErrNotExist)
	}
	if !p.info.Mode().IsRegular() {
		return nil, fmt.Errorf("%w: %.200q is %s", workspaces.ErrInvalidInput, path, kind(p.info.Mode()))
	}
	// It may be something else by now: do not wait for a pipe or a device.
	f, err := p.dir.OpenFile(p.name, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOCTTY, 0)
	if err != nil {
		return nil, fmt.Errorf("read %.200q: %w", path, changed(err))
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("read %.200q: %w", path, bare(err))
	}
	if !info.Mode().IsRegular() {
		return nil, errChanged
	}
	if info.Size() > workspaces.FileMaxBytes {
		return nil, tooLarge(path, info.Size())
	}
	data := make([]byte, 0, info.Size()+1)
	for { // it may grow
		n, err := f.Read(data[len(data):cap(data)])
		data = data[:len(data)+n]
		switch {
		case len(data) > workspaces.FileMaxBytes:
			return nil, tooLarge(path, int64(len(data)))
		case errors.Is(err, io.EOF):
			return data, nil
		case err != nil:
			return nil, fmt.Errorf("read %.200q: %w", path, bare(err))
		}
		if len(data) == cap(data) {
			data = slices.Grow(data, 4096)
		}
	}
}

func tooLarge(path string, bytes int64) error {
	return fmt.Errorf("%w: %.200q has %d bytes, at most %d are possible", workspaces.ErrTooLarge, path, bytes, workspaces.FileMaxBytes)
}

// WriteFile replaces or creates a regular file. See workspaces.Workspace. Hard links of a replaced
// file keep the old content. Directories that are made have mode 0755.
func (w *Workspace) WriteFile(ctx context.Context, path string, data []byte) error {
	return w.write(ctx, path, nil, data)
}

// WriteFileAt is WriteFile for one place. See workspaces.LinkWriter.
func (w *Workspace) WriteFileAt(ctx context.Context, path, at string, data []byte) error {
	return w.write(ctx, path, &at, data)
}

func (w *Workspace) write(ctx context.Context, path string, at *string, data []byte) error {
	if err := w.enter(ctx); err != nil {
		return err
	}
	defer w.calls.leave()
	if len(data) > workspaces.FileMaxBytes {
		return tooLarge(path, int64(len(data)))
	}
	if err := steadily(func() error { return w.replace(path, at, data) }); err != nil {
		return w.orGone(err)
	}
	return nil
}

func (w *Workspace) replace(path string, at *string, data []byte) error {
	p, err := w.locate(path)
	if err != nil {
		return err
	}
	defer p.close()
	if at != nil && *at != p.path {
		return &workspaces.MovedError{At: p.path}
	}
	if p.info != nil {
		if !p.info.Mode().IsRegular() {
			return fmt.Errorf("%w: %.200q is %s", workspaces.ErrInvalidInput, path, kind(p.info.Mode()))
		}
		if !writable(p.info) {
			return fmt.Errorf("write %.200q: %w", path, fs.ErrPermission)
		}
	}
	if err := p.makeDirs(); err != nil {
		return fmt.Errorf("make the directories of %.200q: %w", path, err)
	}
	if err := w.put(p, data); err != nil {
		return fmt.Errorf("write %.200q: %w", path, err)
	}
	return nil
}

// writable says whether the mode lets us write. A mode without the owner's permission binds root too.
func writable(info fs.FileInfo) bool {
	owner := info.Sys().(*syscall.Stat_t)
	bit := fs.FileMode(0o002)
	switch uid := os.Geteuid(); {
	case uid == 0 || uid == int(owner.Uid):
		bit = 0o200
	case inGroup(int(owner.Gid)):
		bit = 0o020
	}
	return info.Mode()&bit != 0
}

func inGroup(gid int) bool {
	groups, _ := os.Getgroups()
	return gid == os.Getegid() || slices.Contains(groups, gid)
}

// put renames a new file into a place. The rename goes from one open directory into
// another: no path is looked up again.
func (w *Workspace) put(p *place, data []byte) error {
	staging, err := w.staging()
	if err != nil {
		return err
	}
	defer staging.Close()
	name := randomHex(8)
	if err := stage(staging, name, p.info, data); err != nil {
		return errors.Join(bare(err), discard(staging, name))
	}
	from, err := staging.Open(".")
	if err == nil {
		defer from.Close()
		var to *os.File
		if to, err = p.dir.Open("."); err == nil {
			defer to.Close()
			err = renameAt(from, name, to, p.name)
		}
	}
	if err != nil {
		err = errors.Join(bare(err), discard(staging, name))
	}
	return err
}

// staging opens the directory where files are written; a command may have removed it.
func (w *Workspace) staging() (*os.Root, error) {
	staging, err := openSubdirectory(w.folder.base, stagingDir)
	if errors.Is(err, fs.ErrNotExist) {
		if err := w.folder.base.Mkdir(stagingDir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, bare(err)
		}
		staging, err = openSubdirectory(w.folder.base, stagingDir)
	}
	if err != nil {
		return nil, bare(err)
	}
	return staging, nil
}

// stage writes a new file that is to replace old, with its mode and, where we may, its owner.
func stage(dir *os.Root, name string, old fs.FileInfo, data []byte) (err error) {
	// A process that is being started has a copy of each open file for a moment; one of this would make
	// the system refuse to run a script that was just written ("text file busy").
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()

	f, err := dir.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if _, err := f.Write(data); err != nil {
		return err
	}
	if old == nil {
		return f.Chmod(newFileMode)
	}
	owner := old.Sys().(*syscall.Stat_t)
	if int(owner.Uid) != os.Geteuid() || int(owner.Gid) != os.Getegid() {
		_ = f.Chown(int(owner.Uid), int(owner.Gid)) // where permitted
	}
	return f.Chmod(old.Mode() & (fs.ModePerm | fs.ModeSetuid | fs.ModeSetgid | fs.ModeSticky))
}

func discard(dir *os.Root, name string) error {
	if err := dir.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
