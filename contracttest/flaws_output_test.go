//go:build linux

package contracttest

import (
	"bytes"
	"context"
	"io"
	"sync"
	"time"

	"github.com/carrel-dev/carrel/workspaces"
)

// rewritten is a flaw of each of a command's outputs.
func rewritten(writer func(w io.Writer) io.Writer) func(context.Context, *workspace, command) (result, error) {
	return func(ctx context.Context, w *workspace, c command) (result, error) {
		if !isScript(c) {
			c.Stdout, c.Stderr = writer(c.Stdout), writer(c.Stderr)
		}
		return w.exec(ctx, c)
	}
}

// outputFlaws lose, delay or change what a command writes.
func outputFlaws() []flaw {
	return []flaw{
		{name: "streams-merged", what: "What a command writes to stderr is in stdout.", exec: before(func(_ *workspace, c *command) {
			var mu sync.Mutex
			out := c.Stdout
			both := writerFunc(func(p []byte) (int, error) {
				mu.Lock()
				defer mu.Unlock()
				return out.Write(p)
			})
			c.Stdout, c.Stderr = both, both
		})},
		{name: "capped-in-bytes", what: "A stream ends after 65,536 bytes.", exec: func(ctx context.Context, w *workspace, c command) (result, error) {
			capped := func(w io.Writer) io.Writer {
				left := workspaces.OutputMaxBytes
				return writerFunc(func(p []byte) (int, error) {
					k := min(left, len(p))
					left -= k
					_, err := w.Write(p[:k])
					return len(p), err
				})
			}
			c.Stdout, c.Stderr = capped(c.Stdout), capped(c.Stderr)
			return w.exec(ctx, c)
		}},
		{name: "decodes-chunks", what: "Invalid bytes are replaced in every chunk by itself.", exec: rewritten(func(w io.Writer) io.Writer {
			return writerFunc(func(p []byte) (int, error) {
				_, err := w.Write(bytes.ToValidUTF8(p, []byte("\uFFFD")))
				return len(p), err
			})
		})},
		{name: "terminal", what: "Output goes through a terminal.", exec: rewritten(func(w io.Writer) io.Writer {
			return writerFunc(func(p []byte) (int, error) {
				_, err := w.Write(bytes.ReplaceAll(p, []byte("\n"), []byte("\r\n")))
				return len(p), err
			})
		})},
		{name: "works-on-every-byte", what: "Each byte of output costs a millisecond.", exec: rewritten(func(w io.Writer) io.Writer {
			return writerFunc(func(p []byte) (int, error) {
				for i := range p {
					time.Sleep(time.Millisecond)
					if _, err := w.Write(p[i : i+1]); err != nil {
						return i, err
					}
				}
				return len(p), nil
			})
		})},
		{name: "buffers", what: "Output is kept until the command has exited, and lost when it does not.", alone: []string{"W3-memory"},
			exec: func(ctx context.Context, w *workspace, c command) (result, error) {
				if isScript(c) {
					return w.exec(ctx, c)
				}
				out, stderr := &buffer{to: c.Stdout}, &buffer{to: c.Stderr}
				c.Stdout, c.Stderr = out, stderr
				r, err := w.exec(ctx, c)
				if err == nil && !r.TimedOut {
					out.flush()
					stderr.flush()
				}
				return r, err
			}},
		{name: "late-output", what: "A call returns before its output has arrived.", exec: func(ctx context.Context, w *workspace, c command) (result, error) {
			if isScript(c) {
				return w.exec(ctx, c)
			}
			out, stderr := &buffer{to: c.Stdout}, &buffer{to: c.Stderr}
			c.Stdout, c.Stderr = out, stderr
			r, err := w.exec(ctx, c)
			time.AfterFunc(5*time.Millisecond, func() { out.flush(); stderr.flush() })
			return r, err
		}},
		{name: "no-errors-text", what: "The reason why a program cannot be run is dropped.", exec: func(ctx context.Context, w *workspace, c command) (result, error) {
			errs, to := &buffer{}, c.Stderr
			errs.to, c.Stderr = to, errs
			r, err := w.exec(ctx, c)
			if err == nil && r.ExitCode < 126 && r.ExitCode != 2 {
				errs.flush()
			}
			return r, err
		}},
	}
}

// A buffer keeps 64 MiB, no more: the machine is others' too.
type buffer struct {
	to   io.Writer
	mu   sync.Mutex
	data bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.data.Len() < 64<<20 {
		return b.data.Write(p)
	}
	return b.to.Write(p)
}

func (b *buffer) flush() {
	b.mu.Lock()
	defer b.mu.Unlock()
	_, _ = b.data.WriteTo(b.to)
}
