//go:build linux

package contracttest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/carrel-dev/carrel/workspaces"
)

type (
	command = workspaces.Command
	result  = workspaces.Result
)

// after is a flaw of what becomes of a command's outcome.
func after(change func(w *workspace, c command, r result, err error) (result, error)) func(context.Context, *workspace, command) (result, error) {
	return func(ctx context.Context, w *workspace, c command) (result, error) {
		r, err := w.exec(ctx, c)
		if isScript(c) {
			return r, err
		}
		return change(w, c, r, err)
	}
}

// before is a flaw of what becomes of a command.
func before(change func(w *workspace, c *command)) func(context.Context, *workspace, command) (result, error) {
	return func(ctx context.Context, w *workspace, c command) (result, error) {
		if !isScript(c) {
			change(w, &c)
		}
		return w.exec(ctx, c)
	}
}

// through runs a command by a script of sh, whose $@ it is.
func through(script string) func(context.Context, *workspace, command) (result, error) {
	return before(func(_ *workspace, c *command) { c.Args = append([]string{"sh", "-c", script, "sh"}, c.Args...) })
}

// outcomeFlaws report wrongly how a command ended.
func outcomeFlaws() []flaw {
	return []flaw{
		{name: "signal-death-is-minus-one", what: "The exit code of a death by signal is -1, as Go has it.", exec: after(func(_ *workspace, _ command, r result, err error) (result, error) {
			if r.ExitCode > 128 && r.ExitCode < 160 {
				r.ExitCode = -1
			}
			return r, err
		})},
		{name: "exit-code-is-lost", what: "Every command exits with 0: the exit code was asked for too early.", exec: func(ctx context.Context, w *workspace, c command) (result, error) {
			r, err := w.exec(ctx, c)
			if !r.TimedOut {
				r.ExitCode = 0
			}
			return r, err
		}},
		{name: "not-found-is-an-error", what: "A program that is not found fails the call.", exec: after(func(_ *workspace, c command, r result, err error) (result, error) {
			if r.ExitCode == 127 {
				return r, fmt.Errorf("%s: %w", c.Args[0], exec.ErrNotFound)
			}
			return r, err
		})},
		{name: "non-zero-is-an-error", what: "A non-zero exit fails the call.", exec: after(func(_ *workspace, _ command, r result, err error) (result, error) {
			if err == nil && r.ExitCode != 0 && !r.TimedOut {
				err = fmt.Errorf("exit status %d", r.ExitCode)
			}
			return r, err
		})},
		{name: "timeout-is-an-error", what: "A timeout fails the call.", exec: after(func(_ *workspace, _ command, r result, err error) (result, error) {
			if r.TimedOut {
				return result{}, context.DeadlineExceeded
			}
			return r, err
		})},
		{name: "timeout-is-137", what: "A timeout has the exit code of a kill.", exec: after(func(_ *workspace, _ command, r result, err error) (result, error) {
			if r.TimedOut {
				r.ExitCode = 137
			}
			return r, err
		})},
		{name: "own-124-is-a-timeout", what: "A command that exits with 124 or 137 is taken for timed out.", exec: after(func(_ *workspace, _ command, r result, err error) (result, error) {
			r.TimedOut = r.TimedOut || r.ExitCode == 124 || r.ExitCode == 137
			return r, err
		})},
		{name: "deadline-is-a-timeout", what: "The deadline of the caller is a result.", exec: after(func(_ *workspace, _ command, r result, err error) (result, error) {
			if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
				return result{ExitCode: 124, TimedOut: true}, nil
			}
			return r, err
		})},
		{name: "dispose-looks-like-exit", what: "A command whose workspace is disposed has the result of a kill.", exec: after(func(_ *workspace, _ command, r result, err error) (result, error) {
			if errors.Is(err, workspaces.ErrDisposed) || errors.Is(err, context.Canceled) {
				return result{ExitCode: 137}, nil
			}
			return r, err
		})},
		{name: "retries", what: "A command that failed is run once more.", exec: func(ctx context.Context, w *workspace, c command) (result, error) {
			r, err := w.exec(ctx, c)
			if err == nil && !r.TimedOut && r.ExitCode != 0 {
				return w.exec(ctx, c)
			}
			return r, err
		}},
		{name: "results-mix", what: "The exit code is that of the command which ended last.", exec: after(func(w *workspace, _ command, r result, err error) (result, error) {
			w.state.mu.Lock()
			w.state.last = r.ExitCode
			w.state.mu.Unlock()
			time.Sleep(50 * time.Millisecond)
			w.state.mu.Lock()
			defer w.state.mu.Unlock()
			r.ExitCode = w.state.last
			return r, err
		})},
		{name: "out-of-memory-is-not-told", what: "Nobody says that a command ran out of memory.", needs: []Capability{LimitsMemory}, exec: after(func(_ *workspace, _ command, r result, err error) (result, error) {
			r.OOMKilled = false
			return r, err
		})},
		{name: "out-of-memory-sticks", what: "After one command ran out of memory, all have.", needs: []Capability{LimitsMemory}, exec: after(func(w *workspace, _ command, r result, err error) (result, error) {
			w.state.mu.Lock()
			defer w.state.mu.Unlock()
			w.state.oom = w.state.oom || r.OOMKilled
			r.OOMKilled = w.state.oom
			return r, err
		})},
		{name: "death-of-sandbox-is-success", what: "A command whose sandbox was removed has exited with 0.", needs: []Capability{Sandbox}, exec: after(func(_ *workspace, _ command, r result, err error) (result, error) {
			if errors.Is(err, workspaces.ErrGone) {
				return result{}, nil
			}
			return r, err
		})},
		{name: "no-guard", what: "A workspace that does not answer holds a call up for ever.", needs: []Capability{Pauses}, exec: func(ctx context.Context, w *workspace, c command) (result, error) {
			w.state.mu.Lock()
			paused := w.state.paused
			w.state.mu.Unlock()
			if !paused {
				return w.exec(ctx, c)
			}
			select {
			case <-w.world.ended:
			case <-ctx.Done():
			}
			return result{}, context.Canceled
		}},
	}
}

// startFlaws start a command wrongly.
func startFlaws() []flaw {
	return []flaw{
		{name: "shell-joins-arguments", what: "Arguments are joined and given to a shell.", exec: before(func(_ *workspace, c *command) {
			if c.Args[0] != "sh" {
				c.Args = []string{"sh", "-c", strings.Join(c.Args, " ")}
			}
		})},
		{name: "drops-empty-arguments", what: "Empty arguments are dropped.", exec: func(ctx context.Context, w *workspace, c command) (result, error) {
			var args []string
			for _, arg := range c.Args {
				if arg != "" {
					args = append(args, arg)
				}
			}
			c.Args = args
			return w.exec(ctx, c)
		}},
		{name: "wraps-scripts", what: "A script is written into another.", exec: before(func(_ *workspace, c *command) {
			if len(c.Args) > 2 && c.Args[1] == "-c" {
				c.Args = append([]string{}, c.Args...)
				c.Args[2] = "{ " + c.Args[2] + "\n}"
			}
		})},
		{name: "ignores-dir", what: "Every command runs in the root.", exec: before(func(_ *workspace, c *command) { c.Dir = "." })},
		{name: "missing-dir-is-a-result", what: "A directory that is not there is an exit code.", exec: after(func(_ *workspace, _ command, r result, err error) (result, error) {
			if errors.Is(err, workspaces.ErrInvalidInput) {
				return result{ExitCode: 1}, nil
			}
			return r, err
		})},
		{name: "dir-follows-links", what: "The directory may be a link that leaves the workspace.", exec: func(ctx context.Context, w *workspace, c command) (result, error) {
			if target, err := filepath.EvalSymlinks(filepath.Join(w.dir(), c.Dir)); err == nil && !strings.HasPrefix(target, w.dir()) {
				c.Args = append([]string{"sh", "-c", `cd "$0" && exec "$@"`, target}, c.Args...)
				c.Dir = "."
			}
			return w.exec(ctx, c)
		}},
		{name: "environment-of-the-host", what: "Commands inherit our environment.", exec: before(func(_ *workspace, c *command) {
			env := make(map[string]string)
			for _, variable := range os.Environ() {
				if name, value, _ := strings.Cut(variable, "="); name != "HOME" && name != "TMPDIR" && name != "PATH" {
					env[name] = value
				}
			}
			for name, value := range c.Env {
				env[name] = value
			}
			c.Env = env
		})},
		{name: "drops-environment", what: "What a command adds to the environment is dropped.", exec: before(func(_ *workspace, c *command) { c.Env = nil })},
		{name: "umask-of-the-host", what: "Commands inherit a umask.", exec: through(`umask 077; exec "$@"`)},
		{name: "ignored-signals", what: "Commands start with SIGPIPE, SIGINT and SIGHUP ignored.", exec: through(`trap '' PIPE INT HUP; exec "$@"`)},
		{name: "open-descriptor", what: "Commands inherit a descriptor.", exec: through(`exec 7</dev/null; exec "$@"`)},
		{name: "stdin-stays-open", what: "A command without stdin has one that nobody closes.", exec: func(ctx context.Context, w *workspace, c command) (result, error) {
			if c.Stdin == nil && !isScript(c) {
				reader, writer := io.Pipe()
				defer writer.Close()
				c.Stdin = reader
			}
			return w.exec(ctx, c)
		}},
		{name: "stdin-ends-at-64-KiB", what: "Stdin beyond 64 KiB is dropped.", exec: before(func(_ *workspace, c *command) {
			if c.Stdin != nil {
				c.Stdin = io.LimitReader(c.Stdin, 65_536)
			}
		})},
		{name: "waits-for-stdin", what: "The call returns when the caller's reader has ended.", exec: func(ctx context.Context, w *workspace, c command) (result, error) {
			if c.Stdin == nil {
				return w.exec(ctx, c)
			}
			ended := make(chan struct{})
			var once sync.Once
			stdin := c.Stdin
			c.Stdin = readerFunc(func(p []byte) (int, error) {
				n, err := stdin.Read(p)
				if err != nil {
					once.Do(func() { close(ended) })
				}
				return n, err
			})
			r, err := w.exec(ctx, c)
			go func() { _, _ = io.Copy(io.Discard, c.Stdin) }()
			select {
			case <-ended:
			case <-ctx.Done():
			case <-w.world.ended:
			}
			return r, err
		}},
		{name: "unread-stdin-is-an-error", what: "A command that does not read all of its stdin fails the call.", exec: func(ctx context.Context, w *workspace, c command) (result, error) {
			if c.Stdin == nil {
				return w.exec(ctx, c)
			}
			data, _ := io.ReadAll(io.LimitReader(c.Stdin, 1<<20))
			c.Stdin = bytes.NewReader(data)
			r, err := w.exec(ctx, c)
			if err == nil && r.ExitCode != 0 {
				err = errors.New("write |1: broken pipe")
			}
			return r, err
		}},
	}
}

type readerFunc func(p []byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }
