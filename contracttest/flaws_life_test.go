//go:build linux

package contracttest

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"github.com/carrel-dev/carrel/workspaces"
)

// disposeFlaws dispose wrongly.
func disposeFlaws() []flaw {
	return []flaw{
		{name: "dispose-again-fails", what: "The second disposal fails: there is nothing.", dispose: func(ctx context.Context, w *workspace) error {
			w.state.mu.Lock()
			disposed := w.state.disposed
			w.state.disposed = true
			w.state.mu.Unlock()
			if disposed {
				return fs.ErrNotExist
			}
			return w.inner.Dispose(ctx)
		}},
		{name: "dispose-dies-with-its-caller", what: "A disposal whose context has ended does nothing.", dispose: func(ctx context.Context, w *workspace) error {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return w.dispose(ctx)
		}},
		{name: "dispose-leaves-read-only", what: "A tree that is read-only stays.", dispose: func(ctx context.Context, w *workspace) error {
			readOnly := false
			_ = filepath.WalkDir(w.dir(), func(path string, entry fs.DirEntry, err error) error {
				if err == nil && entry.IsDir() {
					info, err := entry.Info()
					readOnly = readOnly || err == nil && info.Mode()&0o200 == 0
				}
				return nil
			})
			dir := folder(w)
			err := w.dispose(ctx)
			if readOnly {
				_ = os.Mkdir(dir, 0o700)
			}
			return err
		}},
		{name: "dispose-leaves-processes", what: "Processes that run at the disposal stay.", dispose: func(ctx context.Context, w *workspace) error {
			running := len(processes(folder(w))) > 0
			err := w.dispose(ctx)
			if running {
				survivor := exec.Command("sleep", "300")
				survivor.Env = []string{"LANG=C", workspaces.WorkspaceEnv + "=" + w.dir()}
				if survivor.Start() == nil {
					go func() { _ = survivor.Wait() }() // killed when the case is over
				}
			}
			return err
		}},
		{name: "dispose-does-not-wait", what: "A disposal returns while commands are being stopped.", dispose: func(ctx context.Context, w *workspace) error {
			w.state.mu.Lock()
			running := w.state.running
			w.state.mu.Unlock()
			if running == 0 {
				return w.dispose(ctx)
			}
			time.AfterFunc(300*time.Millisecond, func() { _ = w.dispose(context.Background()) })
			return nil
		}},
		{name: "dispose-takes-neighbours", racy: true, what: "A disposal takes the other workspaces too.", dispose: func(ctx context.Context, w *workspace) error {
			w.world.mu.Lock()
			made := slices.Clone(w.world.made)
			w.world.mu.Unlock()
			var err error
			for _, other := range made {
				err = errors.Join(err, other.dispose(ctx))
			}
			return err
		}},
		{name: "works-after-dispose", what: "A call after the disposal has nothing to say.", read: func(ctx context.Context, w *workspace, path string) ([]byte, error) {
			data, err := w.inner.ReadFile(ctx, path)
			if errors.Is(err, workspaces.ErrDisposed) {
				return nil, nil
			}
			return data, err
		}},
		{name: "dispose-of-gone-fails", what: "What is gone cannot be disposed.", dispose: func(ctx context.Context, w *workspace) error {
			if err := w.probe(ctx); errors.Is(err, workspaces.ErrGone) {
				_ = w.dispose(ctx)
				return err
			}
			return w.dispose(ctx)
		}},
		{name: "dispose-leaves-the-directory", what: "A disposal removes nothing.", dispose: func(context.Context, *workspace) error { return nil }},
	}
}

// goneFlaws tell wrongly whether the thing behind is there.
func goneFlaws() []flaw {
	unavailable := errors.New("exit status 1")
	return []flaw{
		{name: "gone-is-not-noticed", what: "A workspace that was removed is one whose calls fail.",
			probe: func(context.Context, *workspace) error { return nil },
			exec: after(func(_ *workspace, _ command, r result, err error) (result, error) {
				if errors.Is(err, workspaces.ErrGone) {
					err = unavailable
				}
				return r, err
			}),
			read: func(ctx context.Context, w *workspace, path string) ([]byte, error) {
				data, err := w.inner.ReadFile(ctx, path)
				if errors.Is(err, workspaces.ErrGone) {
					err = unavailable
				}
				return data, err
			}},
		{name: "probe-is-always-gone", what: "A probe after a failed call says gone.", probe: func(context.Context, *workspace) error { return workspaces.ErrGone }},
		{name: "gone-is-a-result", what: "A command in a workspace that was removed has exited with 1.", exec: after(func(_ *workspace, _ command, r result, err error) (result, error) {
			if errors.Is(err, workspaces.ErrGone) {
				return result{ExitCode: 1}, nil
			}
			return r, err
		})},
	}
}

// createFlaws make workspaces wrongly, or say wrongly what they made.
func createFlaws() []flaw {
	return []flaw{
		{name: "one-for-all", what: "All runs get one workspace.", create: func(ctx context.Context, p *provider, options workspaces.CreateOptions) (workspaces.Created, error) {
			p.world.mu.Lock()
			made := slices.Clone(p.world.made)
			p.world.mu.Unlock()
			for _, w := range made {
				if w.probe(ctx) == nil {
					return workspaces.Created{Workspace: w}, nil
				}
			}
			return p.create(ctx, options)
		}},
		{name: "create-ignores-cancel", what: "A create whose context has ended makes a workspace.", create: func(ctx context.Context, p *provider, options workspaces.CreateOptions) (workspaces.Created, error) {
			return p.create(context.WithoutCancel(ctx), options)
		}},
		{name: "cancelled-create-leaves", what: "A create that is cancelled leaves what it has made.", create: func(ctx context.Context, p *provider, options workspaces.CreateOptions) (workspaces.Created, error) {
			created, err := p.create(context.WithoutCancel(ctx), options)
			select {
			case <-ctx.Done():
				return workspaces.Created{}, ctx.Err()
			case <-time.After(50 * time.Millisecond):
				return created, err
			}
		}},
		{name: "ignores-lifetime", what: "Every workspace lives for half an hour.", create: func(ctx context.Context, p *provider, options workspaces.CreateOptions) (workspaces.Created, error) {
			options.Limits.Lifetime = 0
			return p.create(ctx, options)
		}},
		{name: "never-expires", what: "A workspace does not say when it expires.", info: func(_ *workspace, info workspaces.Info) workspaces.Info {
			info.ExpiresAt = time.Time{}
			return info
		}},
		{name: "names-nothing", what: "A workspace does not say what is behind it.", info: func(_ *workspace, info workspaces.Info) workspaces.Info {
			info.Resource = nil
			return info
		}},
		{name: "drops-the-call's-environment", what: "What a run adds to the environment is dropped.", create: func(ctx context.Context, p *provider, options workspaces.CreateOptions) (workspaces.Created, error) {
			options.Env = nil
			return p.create(ctx, options)
		}},
		{name: "takes-limits-silently", what: "Limits that cannot be enforced are taken and forgotten.", create: func(ctx context.Context, p *provider, options workspaces.CreateOptions) (workspaces.Created, error) {
			options.Limits = workspaces.Limits{Lifetime: options.Limits.Lifetime}
			return p.create(ctx, options)
		}},
		{name: "takes-images-silently", what: "An image is taken and forgotten.", create: func(ctx context.Context, p *provider, options workspaces.CreateOptions) (workspaces.Created, error) {
			options.Image = ""
			return p.create(ctx, options)
		}},
		{name: "ends-never", what: "At its expiry a workspace goes on.", needs: []Capability{EndsAtExpiry}, expire: func(*workspace) {}},
		{name: "declares-too-much", what: "A capability is declared and its interface is missing.", config: func(c *Config) { c.Capabilities = append(c.Capabilities, Finds) }},
		{name: "declares-too-little", what: "An interface is there and its capability is not declared.", config: func(c *Config) {
			c.Capabilities = slices.DeleteFunc(c.Capabilities, func(c Capability) bool { return c == WritesAt })
		}},
	}
}

// collectFlaws collect and find wrongly.
func collectFlaws() []flaw {
	return []flaw{
		{name: "collects-nothing", what: "A collection removes nothing.", collect: func(context.Context, *provider, workspaces.CollectOptions) (int, error) { return 0, nil }},
		{name: "collects-the-living", what: "A collection removes what is not expired.", collect: func(ctx context.Context, p *provider, options workspaces.CollectOptions) (int, error) {
			options.Now = options.Now.Add(24 * time.Hour)
			return p.collect(ctx, options)
		}},
		{name: "collects-for-others", what: "A collection removes what is expired of any deployment.", collect: func(ctx context.Context, p *provider, options workspaces.CollectOptions) (int, error) {
			p.world.mu.Lock()
			deployments := []string{options.Deployment}
			for _, w := range p.world.made {
				deployments = append(deployments, w.state.deployment)
			}
			p.world.mu.Unlock()
			removed := 0
			var err error
			for _, options.Deployment = range deployments {
				n, failed := p.collect(ctx, options)
				removed, err = removed+n, errors.Join(err, failed)
			}
			return removed, err
		}},
		{name: "collects-twice", what: "A collection counts what it has looked at.", collect: func(ctx context.Context, p *provider, options workspaces.CollectOptions) (int, error) {
			_, err := p.collect(ctx, options)
			return 1, err
		}},
		{name: "keeps-the-settled", what: "A collection does not ask what became of a run.", needs: []Capability{Finds}, collect: func(ctx context.Context, p *provider, options workspaces.CollectOptions) (int, error) {
			options.Settled = func(context.Context, string) workspaces.Settlement { return workspaces.SettlementUnknown }
			return p.collect(ctx, options)
		}},
		{name: "collects-the-unsettled", what: "A collection takes a run that nobody knows for settled.", needs: []Capability{Finds}, collect: func(ctx context.Context, p *provider, options workspaces.CollectOptions) (int, error) {
			options.Settled = func(context.Context, string) workspaces.Settlement { return workspaces.RunSettled }
			return p.collect(ctx, options)
		}},
		{name: "finds-nothing", what: "No workspace is found.", needs: []Capability{Finds}, find: func(context.Context, *provider, string, string) ([]workspaces.Workspace, error) { return nil, nil }},
		{name: "finds-other-runs", what: "Workspaces of any run are found.", needs: []Capability{Finds}, find: func(_ context.Context, p *provider, deployment, _ string) ([]workspaces.Workspace, error) {
			p.world.mu.Lock()
			var runs []string
			for _, w := range p.world.made {
				runs = append(runs, w.state.run)
			}
			p.world.mu.Unlock()
			var found []workspaces.Workspace
			for _, run := range runs {
				found = append(found, p.find(deployment, run)...)
			}
			return found, nil
		}},
		{name: "finds-the-dead", what: "What was disposed or has expired is found.", needs: []Capability{Finds}, find: func(_ context.Context, p *provider, deployment, run string) ([]workspaces.Workspace, error) {
			p.world.mu.Lock()
			defer p.world.mu.Unlock()
			var found []workspaces.Workspace
			for _, w := range p.world.made {
				if w.state.deployment == deployment && w.state.run == run {
					found = append(found, w)
				}
			}
			return found, nil
		}},
		{name: "finds-without-notes", what: "What is found does not know its repository.", needs: []Capability{Finds}, info: func(_ *workspace, info workspaces.Info) workspaces.Info {
			info.Repository, info.Ref = "", ""
			return info
		}},
		{name: "doubles", what: "A create does not look whether another process has made it.", needs: []Capability{Finds}, create: func(ctx context.Context, p *provider, options workspaces.CreateOptions) (workspaces.Created, error) {
			created, err := p.Provider.Create(ctx, options)
			if err != nil {
				return created, err
			}
			return workspaces.Created{Workspace: p.world.wrap(created.Workspace, options)}, nil
		}},
	}
}
