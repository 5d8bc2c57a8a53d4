//go:build linux || darwin

package local

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/carrel-dev/carrel/workspaces"
)

const (
	maxLinks = 40 // as Linux has it
	// maxTries is how often a call begins anew.
	maxTries = 16
)

// errChanged: what a path leads through was replaced between two looks at it.
var errChanged = fmt.Errorf("%w: the path changes all the time", workspaces.ErrInvalidInput)

// changed is how a step failed that was possible a moment ago, unless the system had its own reason.
func changed(err error) error {
	for _, reason := range []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.EIO, fs.ErrPermission} {
		if errors.Is(err, reason) {
			return bare(err)
		}
	}
	return errChanged
}

// steadily tries again while commands change what a path leads through.
func steadily(try func() error) (err error) {
	for range maxTries {
		if err = try(); !errors.Is(err, errChanged) {
			break
		}
	}
	return err
}

// A place is where a path of the workspace leads, all links resolved.
type place struct {
	path string      // relative to the root, without links; "." is the root
	name string      // its last element; "." for the root
	info fs.FileInfo // nil: there is nothing

	dir     *os.Root // the directory of name; while something is missing, the last that is there
	missing []string // directories to be made in dir, before name can be

	opened []*os.Root
}

func (p *place) close() {
	for _, dir := range p.opened {
		dir.Close()
	}
}

// locate finds out where a clean path leads. It goes step by step, each from an open directory that
// was reached without a link, so that nothing a command renames or links meanwhile
// can lead it out. The caller closes the place. The error is errChanged when it has to be tried again.
func (w *Workspace) locate(name string) (_ *place, err error) {
	p := &place{}
	defer func() {
		if err != nil {
			p.close()
		}
	}()
	dirs := []*os.Root{w.folder.work}
	var names []string
	links := 0
	for rest := strings.Split(name, "/"); len(rest) > 0; {
		element := rest[0]
		rest = rest[1:]
		switch element {
		case "", ".":
			continue
		case "..":
			if len(names) == 0 {
				return nil, leaves(name)
			}
			names, dirs = names[:len(names)-1], dirs[:len(dirs)-1]
			continue
		}
		dir := dirs[len(dirs)-1]
		info, err := dir.Lstat(element)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return p.nothing(dir, names, append([]string{element}, rest...), name)
		case err != nil:
			return nil, fmt.Errorf("look up %.200q: %w", name, bare(err))
		case info.Mode().Type() == fs.ModeSymlink:
			if links++; links > maxLinks {
				return nil, fmt.Errorf("%w: too many links in %.200q", workspaces.ErrInvalidInput, name)
			}
			target, err := dir.Readlink(element)
			if err != nil {
				return nil, fmt.Errorf("look up %.200q: %w", name, changed(err))
			}
			if filepath.IsAbs(target) {
				inside, ok := below(target, w.folder.dir())
				if !ok {
					return nil, leaves(name)
				}
				target, names, dirs = inside, nil, dirs[:1]
			}
			rest = append(strings.Split(target, "/"), rest...)
		case info.IsDir():
			sub, err := openSubdirectory(dir, element)
			if err != nil {
				return nil, fmt.Errorf("look up %.200q: %w", name, changed(err))
			}
			p.opened = append(p.opened, sub)
			if now, err := sub.Stat("."); err != nil || !os.SameFile(info, now) {
				return nil, errChanged
			}
			names, dirs = append(names, element), append(dirs, sub)
		default:
			if strings.Trim(strings.Join(rest, ""), ".") != "" {
				return nil, fmt.Errorf("%w: %.200q: %.200q is no directory", workspaces.ErrInvalidInput, name, element)
			}
			p.path, p.name, p.info, p.dir = path.Join(append(names, element)...), element, info, dir
			return p, nil
		}
	}
	p.dir, p.name, p.path = dirs[len(dirs)-1], ".", "."
	if p.info, err = p.dir.Stat("."); err != nil {
		return nil, fmt.Errorf("look up %.200q: %w", name, bare(err))
	}
	if len(names) > 0 {
		p.path = path.Join(names...)
	}
	return p, nil
}

// nothing is the place of a path whose first missing element is the first of rest.
func (p *place) nothing(dir *os.Root, names, rest []string, name string) (*place, error) {
	var missing []string
	for _, element := range rest {
		switch element {
		case "", ".":
		case "..": // out of a directory that is not there
			return nil, fmt.Errorf("look up %.200q: %w", name, fs.ErrNotExist)
		default:
			missing = append(missing, element)
		}
	}
	p.dir = dir
	p.path = path.Join(append(names, missing...)...)
	p.name, p.missing = missing[len(missing)-1], missing[:len(missing)-1]
	return p, nil
}

// makeDirs makes the missing directories.
func (p *place) makeDirs() error {
	for _, name := range p.missing {
		err := p.dir.Mkdir(name, 0o755)
		if errors.Is(err, fs.ErrExist) {
			return errChanged // made by another call, or something else: look again
		}
		if err != nil {
			return bare(err)
		}
		sub, err := openSubdirectory(p.dir, name)
		if err != nil {
			return changed(err)
		}
		p.opened = append(p.opened, sub)
		if info, err := sub.Stat("."); err == nil && info.Mode().Perm()&0o755 != 0o755 { // the umask
			_ = sub.Chmod(".", info.Mode()|0o755)
		}
		p.dir = sub
	}
	p.missing = nil
	return nil
}

// openSubdirectory opens a directory, and does not wait for a pipe in its place.
func openSubdirectory(dir *os.Root, name string) (*os.Root, error) { return dir.OpenRoot(name + "/.") }

// below returns target relative to dir, when it is dir or below it.
func below(target, dir string) (string, bool) {
	target, ok := strings.CutPrefix(target, dir)
	return target, ok && (target == "" || target[0] == '/')
}

func leaves(name string) error {
	return fmt.Errorf("%w: %.200q leads out of the workspace", workspaces.ErrInvalidInput, name)
}

// kind names what is no regular file.
func kind(mode fs.FileMode) string {
	switch {
	case mode.IsDir():
		return "a directory"
	case mode&fs.ModeNamedPipe != 0:
		return "a named pipe"
	case mode&fs.ModeSocket != 0:
		return "a socket"
	case mode&fs.ModeDevice != 0:
		return "a device"
	}
	return "no regular file"
}
