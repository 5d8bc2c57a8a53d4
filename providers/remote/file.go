package remote

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"time"

	"github.com/carrel-dev/carrel/workspaces"
)

// fileTimeout bounds a read or a write.
const fileTimeout = time.Minute

// ReadFile returns a regular file, in one round trip.
func (w *Workspace) ReadFile(ctx context.Context, path string) ([]byte, error) {
	out := &limited{max: workspaces.FileMaxBytes + 1}
	word, err := w.file(ctx, fmt.Sprintf("read_file %s %d\n", quote(path), workspaces.FileMaxBytes), nil, out)
	switch {
	case err != nil:
		return nil, err
	case word != "ok":
		return nil, refusedFile(word, path)
	case len(out.data) > workspaces.FileMaxBytes:
		return nil, fmt.Errorf("%w: %q has more than %d bytes", workspaces.ErrTooLarge, path, workspaces.FileMaxBytes)
	}
	return out.data, nil
}

// WriteFile replaces or creates a regular file, in one round trip.
func (w *Workspace) WriteFile(ctx context.Context, path string, data []byte) error {
	return w.writeFile(ctx, path, "", data)
}

// WriteFileAt is WriteFile where path leads to at, and nothing elsewhere.
func (w *Workspace) WriteFileAt(ctx context.Context, path, at string, data []byte) error {
	return w.writeFile(ctx, path, at, data)
}

func (w *Workspace) writeFile(ctx context.Context, path, at string, data []byte) error {
	if len(data) > workspaces.FileMaxBytes {
		return fmt.Errorf("%w: %q would have more than %d bytes", workspaces.ErrTooLarge, path, workspaces.FileMaxBytes)
	}
	out := &limited{max: 64 << 10}
	word, err := w.file(ctx, fmt.Sprintf("write_file %s %d %s\n", quote(path), len(data), quote(at)), bytes.NewReader(data), out)
	switch {
	case err != nil:
		return err
	case word == "moved":
		return &workspaces.MovedError{At: string(out.data)}
	case word != "ok":
		return refusedFile(word, path)
	}
	return nil
}

func (w *Workspace) file(ctx context.Context, text string, stdin *bytes.Reader, out io.Writer) (word string, err error) {
	ctx, leave, err := w.enter(ctx)
	if err != nil {
		return "", err
	}
	defer leave()
	k := call{id: randomHex(8), text: text, out: out, errs: io.Discard, patience: fileTimeout}
	if stdin != nil {
		k.stdin = func(to io.Writer) { _, _ = stdin.WriteTo(to) }
	}
	report, _, err := w.call(ctx, k)
	if errors.Is(err, errGuard) {
		err = fmt.Errorf("%w: %w for %s", workspaces.ErrUnavailable, err, fileTimeout)
	}
	return report.word, err
}

func refusedFile(word, path string) error {
	invalid := func(why string) error {
		return fmt.Errorf("%w: %.200q %s", workspaces.ErrInvalidInput, path, why)
	}
	switch word {
	case "absent":
		return &fs.PathError{Op: "open", Path: path, Err: fs.ErrNotExist}
	case "denied", "unreadable":
		return &fs.PathError{Op: "open", Path: path, Err: fs.ErrPermission}
	case "directory":
		return invalid("is a directory")
	case "nodirectory":
		return invalid("leads through what is no directory")
	case "special":
		return invalid("is no regular file")
	case "outside":
		return invalid("leads out of the workspace")
	case "loop":
		return invalid("leads through too many links")
	case "full":
		return fmt.Errorf("%.200q could not be written: the disk is full", path)
	}
	return fmt.Errorf("%w: the sandbox's shell reports %.100q", workspaces.ErrOutcomeUnknown, word)
}

// limited keeps the first bytes of what is written to it.
type limited struct {
	data []byte
	max  int
}

func (l *limited) Write(p []byte) (int, error) {
	l.data = append(l.data, p[:min(len(p), l.max-len(l.data))]...)
	return len(p), nil
}
