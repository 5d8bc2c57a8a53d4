package remote

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/carrel-dev/carrel/workspaces"
)

const (
	disposeWait   = 10 * time.Second // for calls to return
	disposeRemove = time.Minute      // for the sandbox to go
)

// Options say what a workspace is called and what is known of it.
type Options struct {
	ID   string
	Info workspaces.Info
}

// A Workspace is a sandbox behind a Transport, its files below workspaces.Root. It is safe for concurrent use. Its
// owner disposes it, which removes the sandbox; one that is only dropped leaves it as it is, for Close.
type Workspace struct {
	transport Transport
	id        string
	info      workspaces.Info
	pool      pool
	clock     clock

	life   context.Context // ends with the workspace, or Close
	finish context.CancelCauseFunc
	work   crew // what goes on: sessions, calls, stops

	mu       sync.Mutex
	disposal *disposal
	started  int // how many commands were
	running  map[*job]struct{}
}

var (
	_ workspaces.Workspace  = (*Workspace)(nil)
	_ workspaces.Prober     = (*Workspace)(nil)
	_ workspaces.LinkWriter = (*Workspace)(nil)
)

// New makes a workspace of a sandbox that is there. It contacts nothing.
func New(transport Transport, options Options) *Workspace {
	w := &Workspace{transport: transport, id: options.ID, info: options.Info, running: make(map[*job]struct{})}
	w.life, w.finish = context.WithCancelCause(context.Background())
	w.pool.open = w.open
	return w
}

// ID is what the workspace is called.
func (w *Workspace) ID() string { return w.id }

// Info is what is known of the workspace.
func (w *Workspace) Info() workspaces.Info {
	info := w.info
	info.Resource = maps.Clone(info.Resource)
	return info
}

// Warm opens sessions for the calls to come, in the background.
func (w *Workspace) Warm() { w.pool.refill() }

// Probe says whether the sandbox is there.
func (w *Workspace) Probe(ctx context.Context) error {
	ctx, leave, err := w.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	return w.transport.Alive(ctx)
}

// enter lets a call in. Its context ends with the caller's and with the workspace.
func (w *Workspace) enter(ctx context.Context) (inside context.Context, leave func(), err error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	if err := w.work.join(); err != nil {
		return nil, nil, err
	}
	inside, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(w.life, func() { cancel(context.Cause(w.life)) })
	return inside, func() {
		stop()
		cancel(nil)
		w.work.leave()
	}, nil
}

// Close lets go of the sandbox, which lives on: its sessions end, and calls with workspaces.ErrClosed.
func (w *Workspace) Close() {
	w.end(workspaces.ErrClosed)
	w.work.wait(disposeWait)
}

func (w *Workspace) end(reason error) {
	w.work.close(reason)
	w.finish(reason)
	w.pool.close()
}

// A disposal is one attempt.
type disposal struct {
	done chan struct{} // closed when it has ended
	err  error
}

func (d *disposal) failed() bool {
	select {
	case <-d.done:
		return d.err != nil
	default:
		return false
	}
}

// Dispose unblocks calls with workspaces.ErrDisposed and removes the sandbox, with all that runs in it. Calls at the same
// time share one attempt; after a failed one the next call starts another. The end of ctx ends the wait alone.
func (w *Workspace) Dispose(ctx context.Context) error {
	w.mu.Lock()
	if w.disposal == nil || w.disposal.failed() {
		d := &disposal{done: make(chan struct{})}
		w.disposal = d
		go func() {
			defer close(d.done)
			d.err = w.dispose()
		}()
	}
	d := w.disposal
	w.mu.Unlock()
	select {
	case <-d.done:
		return d.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (w *Workspace) dispose() error {
	w.end(workspaces.ErrDisposed)
	ctx, cancel := context.WithTimeout(context.Background(), disposeRemove)
	defer cancel()
	err := w.transport.Remove(ctx)
	if !w.work.wait(disposeWait) && err == nil {
		err = fmt.Errorf("dispose workspace %s: calls do not return", w.id)
	}
	return err
}

// A crew is what goes on in a workspace. The zero value takes members.
type crew struct {
	mu     sync.Mutex
	reason error // why nobody joins any more
	n      int
	empty  chan struct{} // closed when the last one leaves; nil while nobody waits
}

func (c *crew) join() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.reason != nil {
		return c.reason
	}
	c.n++
	return nil
}

func (c *crew) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n--; c.n == 0 && c.empty != nil {
		close(c.empty)
		c.empty = nil
	}
}

// close lets nobody join any more. A later reason counts: what was closed can still be disposed.
func (c *crew) close(reason error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reason = reason
}

// wait says whether all have left in time.
func (c *crew) wait(limit time.Duration) bool {
	c.mu.Lock()
	if c.n == 0 {
		c.mu.Unlock()
		return true
	}
	if c.empty == nil {
		c.empty = make(chan struct{})
	}
	empty := c.empty
	c.mu.Unlock()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-empty:
		return true
	case <-timer.C:
		return false
	}
}
