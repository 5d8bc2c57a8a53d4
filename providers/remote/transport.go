package remote

import (
	"context"
	"io"
)

// A Transport is the way into one sandbox. Its methods are safe for concurrent use. Their errors match
// workspaces.ErrGone where the sandbox is not there any more, and workspaces.ErrUnavailable where that cannot be told.
type Transport interface {
	// Exec runs argv, without a shell, as the sandbox's user, and returns its exit code once its output
	// has ended. The end of ctx ends the connection and the call at once; the program is not stopped, but reads the
	// end of its standard input. What is no exit code is an error.
	Exec(ctx context.Context, argv []string, streams Streams) (exitCode int, err error)

	// Alive returns nil where the sandbox is there and runs.
	Alive(ctx context.Context) error

	// Remove removes the sandbox and all that belongs to it. What is not there is removed. It may be called again.
	Remove(ctx context.Context) error
}

// Streams are those of a program. Stdout and Stderr are written to from one goroutine at a time each.
type Streams struct {
	Stdin          io.Reader // nil: at its end
	Stdout, Stderr io.Writer
}
