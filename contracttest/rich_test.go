//go:build linux

package contracttest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/carrel-dev/carrel/workspaces"
)

// The reference makes believe that it has the capabilities in flaw.needs: what a container can do, done with a
// directory. It is as good as the cases need, to show that they can be passed, and failed.

func (wd *world) has(capability Capability) bool { return slices.Contains(wd.flaw.needs, capability) }

func (wd *world) create(ctx context.Context, p *provider, options workspaces.CreateOptions) (workspaces.Created, error) {
	wd.making.Lock()
	defer wd.making.Unlock()
	if wd.has(Finds) {
		for _, w := range wd.living(options.Deployment, options.RunID) {
			if w.state.name == options.Name {
				return workspaces.Created{Workspace: w, Attached: true}, nil
			}
		}
	}
	plain := options
	if wd.has(LimitsMemory) {
		plain.Limits.Memory = ""
	}
	if wd.has(LimitsPIDs) {
		plain.Limits.PIDs = 0
	}
	created, err := p.Provider.Create(ctx, plain)
	if err != nil {
		return created, err
	}
	return workspaces.Created{Workspace: wd.wrap(created.Workspace, options)}, nil
}

func (wd *world) wrap(inner workspaces.Workspace, options workspaces.CreateOptions) *workspace {
	s := &state{
		name: options.Name, run: options.RunID, deployment: options.Deployment, options: options, removed: make(chan struct{}),
	}
	w := &workspace{inner: inner, world: wd, flaw: wd.flaw, state: s}
	s.expiry = time.AfterFunc(time.Hour, func() {})
	if wd.has(EndsAtExpiry) {
		// A little later, so that what is running has its timeout.
		s.expiry.Stop()
		s.expiry = time.AfterFunc(time.Until(inner.Info().ExpiresAt)+time.Second, func() {
			if wd.flaw.expire != nil {
				wd.flaw.expire(w)
				return
			}
			_ = wd.end(w)
		})
	}
	wd.mu.Lock()
	defer wd.mu.Unlock()
	wd.made = append(wd.made, w)
	return w
}

// living returns new handles of the workspaces of a run that are there.
func (wd *world) living(deployment, runID string) []*workspace {
	wd.mu.Lock()
	defer wd.mu.Unlock()
	var found []*workspace
	for _, w := range wd.made {
		w.state.mu.Lock()
		disposed := w.state.disposed
		w.state.mu.Unlock()
		if disposed || w.state.deployment != deployment || w.state.run != runID || time.Now().After(w.Info().ExpiresAt) || w.probe(context.Background()) != nil {
			continue
		}
		found = append(found, &workspace{inner: w.inner, world: wd, flaw: wd.flaw, state: w.state})
	}
	return found
}

// A finder is a provider that is a workspaces.Finder.
type finder struct{ *provider }

func (p finder) Find(ctx context.Context, deployment, runID string) ([]workspaces.Workspace, error) {
	if p.flaw.find != nil {
		return p.flaw.find(ctx, p.provider, deployment, runID)
	}
	return p.find(deployment, runID), nil
}

func (p *provider) find(deployment, runID string) []workspaces.Workspace {
	var found []workspaces.Workspace
	for _, w := range p.world.living(deployment, runID) {
		found = append(found, w)
	}
	return found
}

// collect also removes what belongs to settled runs: with Finds, a workspace's process means nothing.
func (p *provider) collect(ctx context.Context, options workspaces.CollectOptions) (int, error) {
	removed, err := p.Provider.Collect(ctx, options)
	if !p.world.has(Finds) {
		return removed, err
	}
	p.world.mu.Lock()
	made := slices.Clone(p.world.made)
	p.world.mu.Unlock()
	for _, w := range made {
		if w.state.deployment == options.Deployment && w.probe(ctx) == nil && options.Settled(ctx, w.state.run) == workspaces.RunSettled {
			err = errors.Join(err, w.dispose(ctx))
			removed++
		}
	}
	return removed, err
}

// remove is Config.Remove.
func (wd *world) remove(_ context.Context, handed workspaces.Workspace) error {
	w, ok := workspaces.As[*workspace](handed)
	if !ok {
		return fmt.Errorf("%T is none of ours", handed)
	}
	return wd.end(w)
}

// end removes the directory and, where that is to be believed, ends the processes in it.
func (wd *world) end(w *workspace) error {
	w.state.mu.Lock()
	select {
	case <-w.state.removed:
	default:
		close(w.state.removed)
	}
	w.state.mu.Unlock()
	return os.RemoveAll(w.dir())
}

// pause is Config.Pause.
func (wd *world) pause(_ context.Context, handed workspaces.Workspace) (func() error, error) {
	w, ok := workspaces.As[*workspace](handed)
	if !ok {
		return nil, fmt.Errorf("%T is none of ours", handed)
	}
	set := func(paused bool) {
		w.state.mu.Lock()
		defer w.state.mu.Unlock()
		w.state.paused = paused
	}
	set(true)
	return func() error { set(false); return nil }, nil
}

var errRemoved = fmt.Errorf("%w: removed", workspaces.ErrGone)

// exec is the reference's Exec, with what is to be believed of the workspace.
func (w *workspace) exec(ctx context.Context, command workspaces.Command) (workspaces.Result, error) {
	w.state.mu.Lock()
	paused := w.state.paused
	w.state.mu.Unlock()
	if paused {
		select {
		case <-time.After(command.Timeout + workspaces.GuardTime):
			return workspaces.Result{ExitCode: 124, TimedOut: true}, nil
		case <-ctx.Done():
			return workspaces.Result{}, ctx.Err()
		}
	}
	if w.world.has(Sandbox) {
		inside, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		go func() {
			select {
			case <-w.state.removed:
				cancel(errRemoved)
			case <-inside.Done():
			}
		}()
		result, err := w.inner.Exec(inside, command)
		if err != nil && ctx.Err() == nil && errors.Is(context.Cause(inside), errRemoved) {
			err = errRemoved
		}
		return result, err
	}
	if memory, _ := w.state.options.Limits.MemoryBytes(); w.world.has(LimitsMemory) && memory > 0 {
		return w.withMemory(ctx, command, memory)
	}
	return w.inner.Exec(ctx, command)
}

// withMemory bounds the address space, which is not what a container does, and takes a program's complaint
// for the kernel's kill.
func (w *workspace) withMemory(ctx context.Context, command workspaces.Command, memory int64) (workspaces.Result, error) {
	complaint := newSink()
	stderr := command.Stderr
	command.Stderr = writerFunc(func(p []byte) (int, error) {
		_, _ = complaint.Write(p)
		return stderr.Write(p)
	})
	command.Args = append([]string{"sh", "-c", fmt.Sprintf(`ulimit -v %d; exec "$@"`, memory>>10), "sh"}, command.Args...)
	result, err := w.inner.Exec(ctx, command)
	if strings.Contains(complaint.String(), "memory exhausted") {
		result.OOMKilled, result.ExitCode = true, 137
	}
	return result, err
}

type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

func (w *workspace) probe(ctx context.Context) error {
	select {
	case <-w.state.removed:
		return errRemoved
	default:
	}
	prober, _ := workspaces.As[workspaces.Prober](w.inner)
	return prober.Probe(ctx)
}
