//go:build linux

package contracttest

import (
	"context"
	"errors"
	"os/exec"
	"time"

	"github.com/carrel-dev/carrel/workspaces"
)

// stopFlaws end commands wrongly, or what these started.
func stopFlaws() []flaw {
	never := func(error) bool { return false }
	return []flaw{
		{name: "waits-for-background-job", what: "A call returns when nobody holds the output any more.", exec: naive{cancel: killGroup}.exec},
		{name: "background-job-is-an-error", what: "A background job that holds the output fails the call.",
			exec: naive{cancel: killGroup, waitDelay: 200 * time.Millisecond, failure: func(err error) bool { return errors.Is(err, exec.ErrWaitDelay) }}.exec},
		{name: "broken-pipe-for-background-job", what: "A background job gets SIGPIPE once the call has returned.",
			exec: naive{cancel: killGroup, waitDelay: 200 * time.Millisecond, failure: never}.exec},
		{name: "kills-the-child-alone", what: "A stop kills the command's first process.",
			exec: naive{cancel: killChild, waitDelay: 200 * time.Millisecond, failure: never}.exec},
		{name: "kills-without-term", what: "A stop kills the command's group at once.",
			exec: naive{cancel: killGroup, waitDelay: 200 * time.Millisecond, failure: never}.exec},
		{name: "asks-and-never-kills", what: "A stop sends TERM to the command's group and no more.",
			exec: naive{cancel: termGroup, waitDelay: 200 * time.Millisecond, failure: never}.exec},
		{name: "stop-kills-all", what: "A stop kills all processes of the workspace.", exec: after(func(w *workspace, _ command, r result, err error) (result, error) {
			if err != nil || r.TimedOut {
				killAll(folder(w))
			}
			return r, err
		})},
		{name: "stop-kills-the-next", racy: true, what: "A stop kills what is started while it goes on.", exec: func(ctx context.Context, w *workspace, c command) (result, error) {
			r, err := w.exec(ctx, c)
			if errors.Is(err, context.Canceled) {
				go func() {
					for range 10 {
						killAll(folder(w))
						time.Sleep(5 * time.Millisecond)
					}
				}()
			}
			return r, err
		}},
		{name: "exit-kills-jobs", what: "The end of a command ends its background jobs.", exec: after(func(w *workspace, c command, r result, err error) (result, error) {
			killAll(folder(w))
			return r, err
		})},
		{name: "context-kills-jobs", racy: true, what: "The end of a call's context ends background jobs, also after the call.", exec: func(ctx context.Context, w *workspace, c command) (result, error) {
			context.AfterFunc(ctx, func() { killAll(folder(w)) })
			return w.exec(ctx, c)
		}},
		{name: "late-cancel", what: "A cancel returns when the command's grace is over.", exec: func(ctx context.Context, w *workspace, c command) (result, error) {
			r, err := w.exec(ctx, c)
			if ctx.Err() != nil && !isScript(c) {
				select {
				case <-time.After(workspaces.KillAfter):
				case <-w.world.ended:
				}
			}
			return r, err
		}},
		{name: "ignores-cancel", what: "The end of a call's context changes nothing.", exec: func(ctx context.Context, w *workspace, c command) (result, error) {
			return w.exec(context.WithoutCancel(ctx), c)
		}},
		{name: "cancel-disconnects", racy: true, what: "A cancel returns and leaves the command running.", alone: []string{"C54-cancel-leaks-nothing"},
			exec: func(ctx context.Context, w *workspace, c command) (result, error) {
				if isScript(c) {
					return w.exec(ctx, c)
				}
				type answer struct {
					r   result
					err error
				}
				done := make(chan answer, 1)
				go func() {
					r, err := w.exec(context.WithoutCancel(ctx), c)
					done <- answer{r, err}
				}()
				select {
				case a := <-done:
					return a.r, a.err
				case <-ctx.Done():
					return result{}, ctx.Err()
				}
			}},
		{name: "does-not-look-before", what: "A call whose context has ended still does its work.", exec: func(ctx context.Context, w *workspace, c command) (result, error) {
			if ctx.Err() != nil {
				ctx = context.WithoutCancel(ctx)
			}
			return w.exec(ctx, c)
		}},
		{name: "zombies", what: "Nobody reaps what commands leave behind.", needs: []Capability{LimitsPIDs}, exec: after(func(w *workspace, _ command, r result, err error) (result, error) {
			child := exec.Command("true")
			if child.Start() == nil {
				go func() {
					<-w.world.ended
					_ = child.Wait()
				}()
			}
			return r, err
		})},
		{name: "processes-without-limit", what: "A limit on processes is taken and not enforced.", needs: []Capability{LimitsPIDs}},
	}
}

// folder is the directory that no other workspace is below.
func folder(w *workspace) string { return w.dir()[:len(w.dir())-len("/work")] }
