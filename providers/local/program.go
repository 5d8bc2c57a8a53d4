//go:build linux || darwin

package local

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/carrel-dev/carrel/workspaces"
)

const (
	exitNotExecutable = 126
	exitNotFound      = 127
	exitSignal        = 128
)

// A refusal is how a shell reports a program that it cannot run: a result, not an error.
type refusal struct {
	code   int
	reason string
}

var (
	notFound    = refusal{exitNotFound, "not found"}
	isDirectory = refusal{exitNotExecutable, "is a directory"}
	forbidden   = refusal{exitNotExecutable, "permission denied"}
)

// A start starts a program; the first argument is not it, but how it is called.
type start func(program string, args []string) (*os.Process, error)

// execute finds the program of a command and starts it, as a shell in dir would: with the PATH of the
// command's own environment, and a script without an interpreter line through sh.
func execute(args []string, dir, path string, start start) (*os.Process, refusal, error) {
	candidates, refused := find(args[0], dir, path)
	for _, candidate := range candidates {
		process, err := start(candidate, args)
		if errors.Is(err, syscall.ENOEXEC) {
			if !isText(absolute(dir, candidate)) {
				return nil, refusal{exitNotExecutable, "cannot execute binary file"}, nil
			}
			process, err = start("/bin/sh", append([]string{"sh", candidate}, args[1:]...))
		}
		if err == nil {
			return process, refusal{}, nil
		}
		var errno syscall.Errno
		if !errors.As(err, &errno) {
			return nil, refusal{}, err
		}
		switch errno {
		case syscall.E2BIG:
			return nil, refusal{}, fmt.Errorf("%w: the command's arguments and environment are too long for the system", workspaces.ErrInvalidInput)
		case syscall.EINVAL: // a NUL byte
			return nil, refusal{}, fmt.Errorf("%w: the system takes no such arguments", workspaces.ErrInvalidInput)
		case syscall.EAGAIN, syscall.ENOMEM, syscall.EMFILE, syscall.ENFILE:
			return nil, refusal{}, fmt.Errorf("start a process: %w", errno)
		case syscall.EACCES:
			refused = forbidden
		case syscall.ENOENT: // the file is there
			return nil, refusal{exitNotFound, "its interpreter was not found"}, nil
		default:
			return nil, refusal{exitNotExecutable, errno.Error()}, nil
		}
	}
	return nil, refused, nil
}

// find returns what may be the program, and what is to be said when none of it is.
func find(name, dir, path string) ([]string, refusal) {
	if strings.Contains(name, "/") {
		if refused := runnable(absolute(dir, name)); refused != (refusal{}) {
			return nil, refused
		}
		return []string{name}, notFound
	}
	var candidates []string
	refused := notFound
	for _, place := range filepath.SplitList(path) {
		candidate := "./" + name // an empty element is the current directory
		if place != "" {
			candidate = strings.TrimRight(place, "/") + "/" + name
		}
		switch r := runnable(absolute(dir, candidate)); r {
		case refusal{}:
			candidates = append(candidates, candidate)
		case forbidden:
			refused = forbidden
		}
	}
	if name == "" {
		return nil, notFound
	}
	return candidates, refused
}

// runnable says what is wrong with a program, as far as its mode tells.
func runnable(file string) refusal {
	info, err := os.Stat(file)
	switch {
	case errors.Is(err, syscall.EACCES):
		return forbidden
	case err != nil:
		return notFound
	case info.IsDir():
		return isDirectory
	case !info.Mode().IsRegular() || info.Mode().Perm()&0o111 == 0:
		return forbidden
	}
	return refusal{}
}

func absolute(dir, file string) string {
	if filepath.IsAbs(file) {
		return file
	}
	return filepath.Join(dir, file)
}

// isText says whether a file may be a script: whether its beginning has no NUL byte.
func isText(file string) bool {
	f, err := os.Open(file)
	if err != nil {
		return false
	}
	defer f.Close()
	beginning, err := io.ReadAll(io.LimitReader(f, 256))
	return err == nil && !bytes.ContainsRune(beginning, 0)
}
