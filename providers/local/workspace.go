//go:build linux || darwin

package local

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/carrel-dev/carrel/workspaces"
)

const (
	// stopKillTime is what is left of StopTime for the killing.
	stopKillTime = workspaces.StopTime - workspaces.KillAfter - 100*time.Millisecond

	disposeKillTime = 3 * time.Second
	disposeWait     = workspaces.StopTime + time.Second
)

// A Workspace is a directory of the host and the processes in it. workspaces.As finds it behind
// what a manager hands out. It is safe for concurrent use.
type Workspace struct {
	folder    *folder
	info      workspaces.Info
	env       []string
	killAfter time.Duration
	signals   dropped

	ending chan struct{} // closed by the first Dispose
	calls  crew          // calls, and the stops that outlive theirs
	drains crew          // outputs, and those who wait for a command's end

	mu       sync.Mutex
	disposal *disposal
	starting int // how many commands are about to be started
	started  int // how many were
	running  map[*job]struct{}
	left     []*job // ended, and may have left processes behind
	outputs  map[*output]struct{}
}

var (
	_ workspaces.Workspace  = (*Workspace)(nil)
	_ workspaces.Prober     = (*Workspace)(nil)
	_ workspaces.LinkWriter = (*Workspace)(nil)
	_ workspaces.HostDir    = (*Workspace)(nil)
)

func newWorkspace(p *Provider, f *folder, options workspaces.CreateOptions, created, expires time.Time) *Workspace {
	return &Workspace{
		folder: f,
		info: workspaces.Info{
			RunID:      options.RunID,
			Provider:   Name,
			Repository: options.Repository,
			Ref:        options.Ref,
			Commit:     options.Commit,
			CreatedAt:  created,
			ExpiresAt:  expires,
			Resource:   map[string]string{"file.directory": f.dir()},
		},
		env:       environment(f, p.env, options.Env),
		killAfter: p.killAfter,
		signals:   p.signals,
		ending:    make(chan struct{}),
		running:   make(map[*job]struct{}),
		outputs:   make(map[*output]struct{}),
	}
}

// ID is the name of the workspace's folder below the provider's root.
func (w *Workspace) ID() string { return w.folder.id }

// Info says what is known of the workspace.
func (w *Workspace) Info() workspaces.Info {
	info := w.info
	info.Resource = maps.Clone(info.Resource)
	return info
}

// HostDir is the workspace's directory, absolute and without links.
func (w *Workspace) HostDir() string { return w.folder.dir() }

// enter lets a call in, which then calls w.calls.leave.
func (w *Workspace) enter(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.disposal != nil {
		return workspaces.ErrDisposed
	}
	w.calls.join()
	return nil
}

// Probe says whether the directory is still there.
func (w *Workspace) Probe(ctx context.Context) error {
	if err := w.enter(ctx); err != nil {
		return err
	}
	defer w.calls.leave()
	return w.probe()
}

func (w *Workspace) probe() error {
	ours, err := w.folder.work.Stat(".")
	if err != nil {
		return fmt.Errorf("%w: %w", workspaces.ErrUnavailable, bare(err))
	}
	info, err := os.Lstat(w.folder.dir())
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w: directory removed", workspaces.ErrGone)
	case err != nil:
		return fmt.Errorf("%w: %w", workspaces.ErrUnavailable, bare(err))
	case !os.SameFile(ours, info):
		return fmt.Errorf("%w: directory replaced by another", workspaces.ErrGone)
	}
	return nil
}

// orGone returns err, or that the workspace is gone when it is.
func (w *Workspace) orGone(err error) error {
	if gone := w.probe(); errors.Is(gone, workspaces.ErrGone) {
		return gone
	}
	return err
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

// Dispose kills what runs, unblocks calls with workspaces.ErrDisposed, and removes the folder.
// Calls at the same time share one attempt; after a failed one the next call starts
// another. The end of ctx ends the wait alone.
func (w *Workspace) Dispose(ctx context.Context) error {
	w.mu.Lock()
	if w.disposal == nil {
		close(w.ending)
	}
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
	// Stops kill at once now. They come first, as they know best what to look for.
	callsDone := w.calls.wait(disposeWait)
	if !w.killEverything() {
		return fmt.Errorf("dispose workspace %s: processes cannot be killed", w.ID())
	}
	if !callsDone && !w.calls.wait(disposeWait) {
		return fmt.Errorf("dispose workspace %s: calls do not return", w.ID())
	}
	w.mu.Lock()
	for o := range w.outputs {
		o.pipe.Close()
	}
	w.mu.Unlock()
	if !w.drains.wait(disposeWait) {
		return fmt.Errorf("dispose workspace %s: outputs do not end", w.ID())
	}
	return w.folder.remove()
}

// killEverything ends all processes of the workspace that can be found.
func (w *Workspace) killEverything() bool {
	w.mu.Lock()
	started := w.started
	jobs := slices.AppendSeq(slices.Clone(w.left), maps.Keys(w.running))
	w.mu.Unlock()
	if started == 0 {
		return true
	}
	return killAll(disposeKillTime, func() []process {
		t, err := processes()
		if err != nil {
			return nil
		}
		found := inhabitants(t, w.folder.root, func(id string) bool { return id == w.ID() })
		for _, j := range jobs {
			found = append(found, j.members(t, nil)...)
		}
		return found
	})
}
