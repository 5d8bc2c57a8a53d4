package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/carrel-dev/carrel/workspaces"
)

// An execution is what an outermost component runs, from its start to its end: once, or once more after an interrupt. It
// has a handle of its own, so that whatever still runs after its end reaches nothing. Executions of one run id share the run's
// workspaces: the manager disposes them when the last handle is released.
type execution struct {
	hook  *Hook
	run   *workspaces.Run
	name  *name // what WithRunID put into its context; nil without
	agent bool  // its outermost component is an agent

	over chan struct{} // closed when it ended
	done chan struct{} // closed when it is released besides

	// Guarded by hook.mu.
	unwatch    func() bool // stops watching the context
	components int         // those that have not ended: the outermost one, and agents that it transferred to
	transfer   bool        // an agent has called its transfer tool
	outcome    workspaces.Outcome
	ended      bool
}

// open opens a run for an execution that ends some time after ctx at the latest.
func (h *Hook) open(ctx context.Context, id string, n *name, agent bool) (*execution, error) {
	e, err := h.begin(id, n, agent)
	if err != nil {
		return nil, err
	}
	if n != nil {
		n.add(e)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	e.unwatch = context.AfterFunc(ctx, func() { e.endLate(ctx) })
	return e, nil
}

func (h *Hook) begin(id string, n *name, agent bool) (*execution, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.draining {
		return nil, fmt.Errorf("run %.80q: %w", id, ErrDraining)
	}
	return h.beginLocked(id, n, agent)
}

// beginLocked opens a handle that Drain waits for.
func (h *Hook) beginLocked(id string, n *name, agent bool) (*execution, error) {
	run, err := h.manager.Open(id)
	if err != nil {
		return nil, fmt.Errorf("run %.80q: %w", id, err)
	}
	e := &execution{
		hook: h, run: run, name: n, agent: agent, over: make(chan struct{}), done: make(chan struct{}),
		components: 1,
		// Who transferred to another agent that never started has not completed.
		outcome: workspaces.Failed,
	}
	h.executions[e] = struct{}{}
	return e, nil
}

// join adds a component to an execution. It is false when that has ended.
func (e *execution) join() bool {
	e.hook.mu.Lock()
	defer e.hook.mu.Unlock()
	if !e.ended {
		e.components++
	}
	return !e.ended
}

// executionsOf returns the executions of a run id that are open or being released.
func (h *Hook) executionsOf(id string) []*execution {
	h.mu.Lock()
	defer h.mu.Unlock()
	var all []*execution
	for e := range h.executions {
		if e.run.ID() == id {
			all = append(all, e)
		}
	}
	return all
}

func (e *execution) transferring() {
	e.hook.mu.Lock()
	defer e.hook.mu.Unlock()
	e.transfer = true
}

func (e *execution) isTransferring() bool {
	e.hook.mu.Lock()
	defer e.hook.mu.Unlock()
	return e.transfer
}

// leave ends a component. The last one ends the execution with the outcome of the last that did not transfer.
func (e *execution) leave(ctx context.Context, outcome workspaces.Outcome, transferred bool) {
	e.hook.mu.Lock()
	e.components--
	if !transferred && !e.ended {
		e.outcome = outcome
	}
	last, outcome := e.components == 0, e.outcome
	e.hook.mu.Unlock()
	if last {
		e.end(ctx, outcome)
	}
}

// end ends the execution, whatever is still open in it, and releases its handle in the background. It is false when
// it had ended before.
func (e *execution) end(ctx context.Context, outcome workspaces.Outcome) bool {
	h := e.hook
	h.mu.Lock()
	if e.ended {
		h.mu.Unlock()
		return false
	}
	e.ended, e.outcome = true, outcome
	unwatch := e.unwatch
	h.mu.Unlock()
	if unwatch != nil {
		unwatch()
	}
	close(e.over)
	if e.name != nil {
		e.name.remove(e)
	}
	go func() {
		h.report(e.run.Release(context.WithoutCancel(ctx), outcome))
		h.mu.Lock()
		delete(h.executions, e)
		h.mu.Unlock()
		close(e.done)
	}()
	return true
}

// endLate ends an execution whose context has ended, unless it does so by itself.
func (e *execution) endLate(ctx context.Context) {
	if !waitFor(e.over, patience) {
		e.end(ctx, workspaces.Cancelled)
	}
}

// cancel ends the execution as cancelled, also where it ended before and was taken for interrupted.
func (e *execution) cancel(ctx context.Context) (done <-chan struct{}) {
	if e.end(ctx, workspaces.Cancelled) || e.endedAs() != workspaces.Interrupted {
		return e.done
	}
	// The release kept the workspaces. One handle more takes that back, where no other holds the run.
	<-e.done
	e.hook.mu.Lock()
	again, err := e.hook.beginLocked(e.run.ID(), nil, e.agent)
	e.hook.mu.Unlock()
	if err != nil {
		if !errors.Is(err, workspaces.ErrClosed) { // Close disposes them
			e.hook.report(err)
		}
		return e.done
	}
	again.end(ctx, workspaces.Cancelled)
	return again.done
}

func (e *execution) endedAs() workspaces.Outcome {
	e.hook.mu.Lock()
	defer e.hook.mu.Unlock()
	return e.outcome
}

// await waits until an execution that has ended is released.
func (e *execution) await() {
	select {
	case <-e.over:
		waitFor(e.done, patience)
	default: // another component of it goes on
	}
}

func waitFor(event <-chan struct{}, most time.Duration) bool {
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-event:
		return true
	case <-timer.C:
		return false
	}
}
