package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/carrel-dev/carrel/workspaces"
)

// patience is how long the end of an Invoke waits for the disposal, and how long a component has to end by itself once
// its context has.
const patience = 10 * time.Second

// ErrDraining is why a draining hook opens no run.
var ErrDraining = errors.New("the lifecycle hook is draining and opens no new runs")

// A Hook is an Eino callbacks.Handler that opens and settles the runs of one manager. It serves any
// number of runs at the same time and is safe for concurrent use. Installed twice in one run, it acts once. Its
// owner calls [Hook.Drain] before the manager is closed.
type Hook struct {
	manager *workspaces.Manager
	onError func(error)
	refused *workspaces.Run // the ended handle that tools get where no run could be opened; nil on a closed manager

	mu         sync.Mutex
	draining   bool
	executions map[*execution]struct{} // open, or being released
}

// An Option changes what New returns.
type Option interface{ apply(*Hook) }

type option func(*Hook)

func (o option) apply(h *Hook) { o(h) }

// OnError names who is told what no caller is: why a run could not be opened, and what a release that nobody waited for met.
// It is called from any goroutine. Without it, or with nil, such errors are dropped.
func OnError(report func(err error)) Option {
	return option(func(h *Hook) { h.onError = report })
}

// New returns a hook for the runs of a manager, which must not be nil. It contacts nothing and has nothing to close.
func New(manager *workspaces.Manager, options ...Option) *Hook {
	h := &Hook{manager: manager, executions: make(map[*execution]struct{})}
	for _, o := range options {
		if o != nil {
			o.apply(h)
		}
	}
	if run, err := manager.Open("carrel-refused"); err == nil {
		h.report(run.Release(context.Background(), workspaces.Interrupted)) // it holds nothing that could settle
		h.refused = run
	}
	return h
}

// Drain refuses new runs from now on, and waits until those that are open have ended and their release is done.
// When ctx ends first, the error matches its, and says how many are left; they go on. Drain may be called
// again, and from several goroutines. What does not end in time, [workspaces.Manager.Close] disposes.
func (h *Hook) Drain(ctx context.Context) error {
	for {
		left, next := h.drain()
		if left == 0 {
			return nil
		}
		select {
		case <-next.done:
		case <-ctx.Done():
			return fmt.Errorf("%d runs are still open: %w", left, ctx.Err())
		}
	}
}

// drain closes the hook for new runs and returns one of those that are left.
func (h *Hook) drain() (left int, next *execution) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.draining = true
	for next = range h.executions {
		break
	}
	return len(h.executions), next
}

func (h *Hook) report(err error) {
	if err != nil && h.onError != nil {
		h.onError(err)
	}
}
