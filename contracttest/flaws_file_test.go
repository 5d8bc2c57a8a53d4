//go:build linux

package contracttest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/carrel-dev/carrel/workspaces"
)

// written is a flaw of a write: change may do it all, or leave the rest to the reference.
func written(change func(w *workspace, path, file string, data []byte) (done bool, err error)) func(context.Context, *workspace, string, *string, []byte) error {
	return func(ctx context.Context, w *workspace, path string, at *string, data []byte) error {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if at != nil && *at != path { // a second try, after a link
			return w.writeAt(ctx, path, at, data)
		}
		if done, err := change(w, path, filepath.Join(w.dir(), path), data); done {
			return err
		}
		return w.writeAt(ctx, path, at, data)
	}
}

// overwrite is os.WriteFile that does not wait for the reader of a named pipe.
func overwrite(file string, data []byte) error {
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|syscall.O_NONBLOCK, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Close())
}

func regular(file string) bool {
	info, err := os.Lstat(file)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o200 != 0
}

// readFlaws read files wrongly.
func readFlaws() []flaw {
	return []flaw{
		{name: "reads-through-links", what: "A read follows links out of the workspace.", read: func(ctx context.Context, w *workspace, path string) ([]byte, error) {
			data, err := w.inner.ReadFile(ctx, path)
			if errors.Is(err, workspaces.ErrInvalidInput) {
				file := filepath.Join(w.dir(), path)
				if info, failed := os.Stat(file); failed == nil && info.Mode().IsRegular() {
					return os.ReadFile(file)
				}
			}
			return data, err
		}},
		{name: "read-blocks-on-pipe", what: "A read waits for who writes into a named pipe.", read: func(ctx context.Context, w *workspace, path string) ([]byte, error) {
			if info, err := os.Stat(filepath.Join(w.dir(), path)); err == nil && info.Mode()&fs.ModeNamedPipe != 0 {
				<-w.world.ended
			}
			return w.inner.ReadFile(ctx, path)
		}},
		{name: "reads-by-output", what: "A read is the output of cat, with its cap.", read: func(ctx context.Context, w *workspace, path string) ([]byte, error) {
			data, err := w.inner.ReadFile(ctx, path)
			return data[:min(len(data), workspaces.OutputMaxBytes)], err
		}},
		{name: "reads-the-beginning", what: "Of a file that is too large the beginning is read.", read: func(ctx context.Context, w *workspace, path string) ([]byte, error) {
			data, err := w.inner.ReadFile(ctx, path)
			if errors.Is(err, workspaces.ErrTooLarge) {
				return make([]byte, 1<<20), nil
			}
			return data, err
		}},
		{name: "missing-file-is-empty", what: "A file that is not there is read as an empty one.", read: func(ctx context.Context, w *workspace, path string) ([]byte, error) {
			data, err := w.inner.ReadFile(ctx, path)
			if errors.Is(err, fs.ErrNotExist) {
				return nil, nil
			}
			return data, err
		}},
		{name: "missing-file-is-gone", what: "A file that is not there is taken for a workspace that is not.", read: func(ctx context.Context, w *workspace, path string) ([]byte, error) {
			data, err := w.inner.ReadFile(ctx, path)
			if errors.Is(err, fs.ErrNotExist) {
				err = workspaces.ErrGone
			}
			return data, err
		}},
		{name: "refuses-ordinary-names", what: "A name that begins with a dash or two dots is refused.", read: func(ctx context.Context, w *workspace, path string) ([]byte, error) {
			if base := filepath.Base(path); strings.HasPrefix(base, "-") || strings.HasPrefix(base, "..") {
				return nil, fmt.Errorf("%w: %q", workspaces.ErrInvalidInput, path)
			}
			return w.inner.ReadFile(ctx, path)
		}},
	}
}

// writeFlaws write files wrongly.
func writeFlaws() []flaw {
	return []flaw{
		{name: "writes-through-links", what: "A write follows links out of the workspace.", write: written(func(w *workspace, path, file string, data []byte) (bool, error) {
			dir, err := filepath.EvalSymlinks(filepath.Dir(file))
			if target, failed := filepath.EvalSymlinks(file); failed == nil {
				dir, err = target, nil
			}
			if err == nil && !strings.HasPrefix(dir, w.dir()) {
				return true, os.WriteFile(file, data, 0o644)
			}
			return false, nil
		})},
		{name: "checks-then-writes", what: "A link is looked at, and followed later.", write: written(func(w *workspace, path, file string, data []byte) (bool, error) {
			target, err := filepath.EvalSymlinks(file)
			if err == nil && strings.HasPrefix(target, w.dir()) && (!regular(file) || strings.Contains(path, "/")) {
				time.Sleep(3 * time.Millisecond)
				return true, overwrite(file, data)
			}
			return false, nil
		})},
		{name: "replaces-links", what: "A write replaces a link by a file.", write: written(func(w *workspace, path, file string, data []byte) (bool, error) {
			if target, err := filepath.EvalSymlinks(file); err == nil && strings.HasPrefix(target, w.dir()) && regular(target) {
				if info, err := os.Lstat(file); err == nil && info.Mode()&fs.ModeSymlink != 0 {
					_ = os.Remove(file)
				}
			}
			return false, nil
		})},
		{name: "writes-where-the-path-leads", what: "A write for a place happens wherever the path leads.", write: func(ctx context.Context, w *workspace, path string, _ *string, data []byte) error {
			return w.inner.WriteFile(ctx, path, data)
		}},
		{name: "new-file-is-private", what: "A new file has mode 0600.", write: func(ctx context.Context, w *workspace, path string, at *string, data []byte) error {
			file := filepath.Join(w.dir(), path)
			_, missing := os.Lstat(file)
			err := w.writeAt(ctx, path, at, data)
			if err == nil && missing != nil {
				_ = os.Chmod(file, 0o600)
			}
			return err
		}},
		{name: "mode-is-lost", what: "A file that is written has mode 0644 then.", write: func(ctx context.Context, w *workspace, path string, at *string, data []byte) error {
			err := w.writeAt(ctx, path, at, data)
			if err == nil {
				_ = os.Chmod(filepath.Join(w.dir(), path), 0o644)
			}
			return err
		}},
		{name: "directories-are-private", what: "Directories that are made have mode 0700.", write: func(ctx context.Context, w *workspace, path string, at *string, data []byte) error {
			file := filepath.Join(w.dir(), path)
			_, missing := os.Lstat(filepath.Dir(file))
			err := w.writeAt(ctx, path, at, data)
			if err == nil && missing != nil {
				_ = os.Chmod(filepath.Dir(file), 0o700)
			}
			return err
		}},
		{name: "visible-temporary-file", what: "A temporary file beside the file shows.", write: written(func(w *workspace, path, file string, data []byte) (bool, error) {
			temporary := filepath.Join(filepath.Dir(file), ".carrel-tmp")
			if os.WriteFile(temporary, data, 0o600) == nil {
				time.Sleep(20 * time.Millisecond)
				_ = os.Remove(temporary)
			}
			return false, nil
		})},
		{name: "not-atomic", what: "A file is written in place.", write: written(func(w *workspace, path, file string, data []byte) (bool, error) {
			if !regular(file) {
				return false, nil
			}
			f, err := os.OpenFile(file, os.O_WRONLY|os.O_TRUNC, 0)
			if err != nil {
				return true, err
			}
			defer f.Close()
			_, err = f.Write(data[:len(data)/2])
			time.Sleep(20 * time.Millisecond)
			_, err2 := f.Write(data[len(data)/2:])
			return true, errors.Join(err, err2)
		})},
		{name: "closes-later", what: "A file that was written stays open for writing.", write: func(ctx context.Context, w *workspace, path string, at *string, data []byte) error {
			err := w.writeAt(ctx, path, at, data)
			file, failed := os.OpenFile(filepath.Join(w.dir(), path), os.O_WRONLY|syscall.O_NONBLOCK, 0)
			if failed == nil {
				time.AfterFunc(500*time.Millisecond, func() { file.Close() })
			}
			return err
		}},
		{name: "overrides-permission", what: "A read-only file is written.", write: written(func(w *workspace, path, file string, data []byte) (bool, error) {
			info, err := os.Lstat(file)
			if err == nil && info.Mode().IsRegular() && info.Mode()&0o200 == 0 {
				return true, errors.Join(os.Chmod(file, 0o600), os.WriteFile(file, data, 0))
			}
			return false, nil
		})},
		{name: "makes-no-directories", what: "A write into a directory that is not there fails.", write: written(func(w *workspace, path, file string, data []byte) (bool, error) {
			_, err := os.Stat(filepath.Dir(file))
			return errors.Is(err, fs.ErrNotExist), err
		})},
		{name: "trims", what: "White space at the end of a file is dropped.", write: func(ctx context.Context, w *workspace, path string, at *string, data []byte) error {
			return w.writeAt(ctx, path, at, []byte(strings.TrimRight(string(data), " \n")))
		}},
		{name: "write-blocks-on-pipe", what: "A write waits for who reads from a named pipe.", write: written(func(w *workspace, path, file string, data []byte) (bool, error) {
			if info, err := os.Stat(file); err == nil && info.Mode()&fs.ModeNamedPipe != 0 {
				<-w.world.ended
			}
			return false, nil
		})},
	}
}
