package workspaces

import (
	"context"
	"io"
	"time"
)

// A Command is one program to run in a workspace. It is never given to a shell.
type Command struct {
	// Args is the program and its arguments, at least the program. A program
	// without a slash is looked up in the workspace's PATH.
	Args []string

	// Dir is where it runs: relative to the root, or below /workspace. Empty: the root.
	Dir string

	// Env is added to the workspace's environment.
	Env map[string]string

	// Stdin is read to its end and reaches the command whole. Nil: end of file at
	// once. A reader that blocks may outlive the call that gave it.
	Stdin io.Reader

	// Timeout bounds the command. Zero: ExecTimeout. At most ExecTimeoutMax, and
	// never past the workspace's expiry. Its end is a Result, not an error.
	Timeout time.Duration

	// Stdout and Stderr get every byte as it arrives, uncapped. Nil: nobody
	// listens. They are written from different goroutines, one at a time each; give
	// both the same writer only when it is safe for that. One that blocks may block the command, but
	// neither its timeout nor a cancel; no write starts after Exec has returned.
	Stdout, Stderr io.Writer
}

// A Result says how a command ended. A non-zero exit is data, not an error.
type Result struct {
	// ExitCode is the command's own: 128+n for a death by signal n, 127 for a
	// program that was not found, 126 for one that cannot be executed, 124 when
	// TimedOut.
	ExitCode int

	// Stdout and Stderr are valid UTF-8 of at most OutputMaxBytes bytes. Of a longer
	// stream the beginning and the end are kept around a line that says how many
	// bytes are missing.
	Stdout, Stderr string

	// StdoutTruncated and StderrTruncated say that bytes are missing.
	StdoutTruncated, StderrTruncated bool

	// StdoutBytes and StderrBytes count what the command wrote, in raw bytes.
	StdoutBytes, StderrBytes int64

	// TimedOut: the command did not end within its timeout and was stopped.
	TimedOut bool

	// OOMKilled: the kernel killed a process of the workspace for memory while the
	// command ran.
	OOMKilled bool

	// Warm: the command ran in a session that had been opened beforehand.
	Warm bool

	// Duration is what the caller waited.
	Duration time.Duration
}

// Info is what is known of a workspace.
type Info struct {
	RunID    string
	Provider string // Provider.Name
	Image    string // empty where there are no images

	Repository string // in normal form; empty without one
	Ref        string // as asked; empty: the remote's HEAD
	Commit     string // what was checked out; empty without a commit

	CreatedAt time.Time
	ExpiresAt time.Time

	// Resource names the thing behind, keyed by OpenTelemetry's attribute names
	// ("container.id", "k8s.pod.name").
	Resource map[string]string
}

// A Workspace is a directory and the processes in it, owned by one run. All methods
// are safe for concurrent use. A context bounds the call it is given to, never the
// workspace's life.
//
// To a caller, a workspace is what the manager hands out: it checks its input, fills in
// limits, answers ErrDisposed, ErrExpired, ErrGone or ErrRunEnded where one holds, and
// wraps every failure in an OpError.
//
// To a provider, which implements it, the manager promises clean input: Args
// non-empty and without NUL; Dir and paths clean, relative to the root and below it ("." is the
// root itself), though links in them may still lead anywhere; Env valid; Timeout
// between zero and ExecTimeoutMax, exclusive of zero; Stdout and Stderr never nil, never blocking for
// long after the timeout or the end of ctx. The provider leaves the output
// fields and Duration of a Result alone: the manager fills them from what was written to Stdout and
// Stderr. It confines paths itself.
type Workspace interface {
	// ID is how the model names the workspace.
	ID() string

	Info() Info

	// Exec runs one command and waits for it. With an error the Result still holds
	// the output so far. The end of ctx stops the command and everything it started.
	//
	// A provider returns within CancelReturn of the end of ctx with the context's
	// error, and leaves the rest of the stop to a goroutine that Dispose waits for. It
	// returns as soon as the command exits, even when a job in the background holds the
	// output, and drains what that job writes from then on.
	Exec(ctx context.Context, command Command) (Result, error)

	// ReadFile returns a regular file of at most FileMaxBytes, byte for byte. A longer
	// one is ErrTooLarge, what is no regular file ErrInvalidInput.
	ReadFile(ctx context.Context, path string) ([]byte, error)

	// WriteFile replaces or creates a regular file, and the directories above it. A
	// reader sees the old content or the new. An existing file keeps its mode, a new one
	// gets 0644. A link is followed while it stays in the workspace.
	WriteFile(ctx context.Context, path string, data []byte) error

	// Dispose ends the workspace: it stops what runs, unblocks calls with ErrDisposed,
	// and removes everything. It may be called again, at the same time or after a
	// failure. The end of ctx does not end the disposal, only the wait for it.
	Dispose(ctx context.Context) error
}

// A Prober is a Workspace that can tell whether the thing behind it is still there. The
// manager asks it, for at most ProbeTimeout, after a call that failed.
type Prober interface {
	// Probe returns nil where it is there, an error that matches ErrGone and has the
	// reason where it is not, and another error, ErrUnavailable say, where that
	// cannot be told.
	Probe(ctx context.Context) error
}

// A LinkWriter is a Workspace that can say where a path leads before it writes there.
// The manager runs the writes of one file one after the other; those of a
// workspace that is no LinkWriter it runs all one after the other.
type LinkWriter interface {
	// WriteFileAt is WriteFile, but writes only where path, all links resolved, is
	// at. Elsewhere it returns a *MovedError and touches nothing.
	WriteFileAt(ctx context.Context, path, at string, data []byte) error
}

// A HostDir is a Workspace whose directory is one of the host.
type HostDir interface {
	// HostDir is that directory, absolute and without links.
	HostDir() string
}
