package workspaces

import (
	"errors"
	"fmt"
)

// The errors a caller branches on, with errors.Is. File errors match fs.ErrNotExist,
// fs.ErrExist and fs.ErrPermission besides; a cancelled or late call matches
// context.Canceled or context.DeadlineExceeded.
var (
	// ErrInvalidInput: an argument of the call, usually the model's, breaks a rule.
	ErrInvalidInput = errors.New("invalid input")
	// ErrInvalidConfig: an option given to a constructor breaks a rule.
	ErrInvalidConfig = errors.New("invalid configuration")
	// ErrNotFound: the run holds no such workspace.
	ErrNotFound = errors.New("not found")
	// ErrExpired: the workspace's lifetime is over.
	ErrExpired = errors.New("expired")
	// ErrGone: the container, pod or directory behind the workspace disappeared
	// without us; the error's text has the reason where the platform knows it.
	ErrGone = errors.New("gone")
	// ErrDisposed: the workspace was disposed.
	ErrDisposed = errors.New("disposed")
	// ErrClosed: the manager is closed.
	ErrClosed = errors.New("closed")
	// ErrRunEnded: the run's handle was released.
	ErrRunEnded = errors.New("run ended")
	// ErrLimitReached: the run or the process holds as many workspaces as it may.
	ErrLimitReached = errors.New("limit reached")
	// ErrRefHeld: the run holds the repository at another ref or image.
	ErrRefHeld = errors.New("held at another ref")
	// ErrTooLarge: a file is longer than FileMaxBytes.
	ErrTooLarge = errors.New("too large")
	// ErrUnsupported: the provider cannot do what was explicitly asked.
	ErrUnsupported = errors.New("unsupported")
	// ErrUnavailable: the daemon or API behind the provider cannot be reached. The
	// workspace may well still be there.
	ErrUnavailable = errors.New("unavailable")
	// ErrOutcomeUnknown: the command was started and its report was lost.
	ErrOutcomeUnknown = errors.New("outcome unknown")
)

// An OpError says which operation failed on which workspace. The manager wraps
// every error of a provider in one, once.
type OpError struct {
	Op        string // "exec", "read", "write", "dispose", "create", "checkout"
	Workspace string // its id; empty while there is none
	Err       error
}

func (e *OpError) Error() string {
	if e.Workspace == "" {
		return fmt.Sprintf("%s: %v", e.Op, e.Err)
	}
	return fmt.Sprintf("%s in workspace %s: %v", e.Op, e.Workspace, e.Err)
}

func (e *OpError) Unwrap() error { return e.Err }

// A MovedError is what a LinkWriter answers when the path it was to write leads,
// through symbolic links, to another file of the workspace.
type MovedError struct {
	At string // where the path leads, relative to the root, without links
}

func (e *MovedError) Error() string { return fmt.Sprintf("path leads to %q", e.At) }
