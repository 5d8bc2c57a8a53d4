//go:build linux

package contracttest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/carrel-dev/carrel/providers/local"
	"github.com/carrel-dev/carrel/workspaces"
)

// A flaw is what a deliberately broken provider gets wrong; a nil function does it right. The zero flaw
// is the reference.
type flaw struct {
	name string
	what string // a sentence

	needs []Capability // which it must have to be broken
	alone []string     // which of the cases that run alone it is to be tried with
	racy  bool         // it fails more cases now and then: the golden file has, by hand, those that it always fails

	create  func(ctx context.Context, p *provider, options workspaces.CreateOptions) (workspaces.Created, error)
	collect func(ctx context.Context, p *provider, options workspaces.CollectOptions) (int, error)
	find    func(ctx context.Context, p *provider, deployment, runID string) ([]workspaces.Workspace, error)

	info    func(w *workspace, info workspaces.Info) workspaces.Info
	exec    func(ctx context.Context, w *workspace, command workspaces.Command) (workspaces.Result, error)
	read    func(ctx context.Context, w *workspace, path string) ([]byte, error)
	write   func(ctx context.Context, w *workspace, path string, at *string, data []byte) error
	dispose func(ctx context.Context, w *workspace) error
	probe   func(ctx context.Context, w *workspace) error
	expire  func(w *workspace)

	config func(config *Config)
}

// A world is the infrastructure of one case: a directory for the reference's workspaces.
type world struct {
	flaw  flaw
	root  string
	ended chan struct{} // closed when the case is over: what hangs in a broken provider ends

	making sync.Mutex // one create at a time

	mu   sync.Mutex
	made []*workspace
}

// state is what all handles of a workspace share.
type state struct {
	name, run, deployment, image string
	options                      workspaces.CreateOptions

	mu       sync.Mutex
	removed  chan struct{} // closed when the thing behind was removed
	paused   bool
	disposed bool
	running  int // commands
	expiry   *time.Timer
	last     int // the exit code of the command that ended last
	oom      bool
}

// testConfig is the Config of a provider with that flaw for one case. The reference has the capabilities of a
// directory; rich names those that it makes believe besides.
func testConfig(flaw flaw, patience time.Duration) Config {
	wd := &world{flaw: flaw, ended: make(chan struct{})}
	rich := flaw.needs
	config := Config{
		New: wd.newProvider,
		Capabilities: append([]Capability{
			Collects, SharesHost, HostDir, Probes, WritesAt, FileRepositories,
		}, rich...),
		Leftovers: func(context.Context, workspaces.Provider, string) ([]string, error) { return wd.leftovers() },
		Remove:    wd.remove,
		Patience:  patience,
	}
	if slices.Contains(rich, Pauses) {
		config.Pause = wd.pause
	}
	if flaw.config != nil {
		flaw.config(&config)
	}
	return config
}

func (wd *world) newProvider(t testing.TB) workspaces.Provider {
	wd.mu.Lock()
	defer wd.mu.Unlock()
	if wd.root == "" {
		wd.root = filepath.Join(t.TempDir(), "root")
		t.Cleanup(func() {
			close(wd.ended)
			killAll(wd.root)
			wd.mu.Lock()
			defer wd.mu.Unlock()
			for _, w := range wd.made {
				w.state.expiry.Stop()
				_ = w.inner.Dispose(context.Background())
			}
		})
	}
	inner, err := local.New(local.Options{Root: wd.root})
	require.NoError(t, err)
	p := &provider{Provider: inner, world: wd, flaw: wd.flaw}
	if slices.Contains(wd.flaw.needs, Finds) {
		return finder{p}
	}
	return p
}

// leftovers lists all of the world: the root's entries and the processes of its workspaces.
func (wd *world) leftovers() ([]string, error) {
	entries, err := os.ReadDir(wd.root)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var left []string
	for _, entry := range entries {
		left = append(left, entry.Name())
	}
	for _, pid := range processes(wd.root) {
		left = append(left, fmt.Sprintf("process %d", pid))
	}
	return left, nil
}

// processes returns the living processes of all workspaces below a directory.
func processes(dir string) []int {
	names, _ := filepath.Glob("/proc/[0-9]*")
	var pids []int
	for _, name := range names {
		environment, err := os.ReadFile(filepath.Join(name, "environ"))
		if err != nil || !bytes.Contains(environment, []byte("\x00"+workspaces.WorkspaceEnv+"="+dir+"/")) {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(name)); err == nil && pid != os.Getpid() {
			pids = append(pids, pid)
		}
	}
	return pids
}

func killAll(dir string) {
	for range 5 {
		pids := processes(dir)
		if len(pids) == 0 {
			return
		}
		for _, pid := range pids {
			if p, err := os.FindProcess(pid); err == nil {
				_ = p.Kill()
			}
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// A provider is the reference, with a flaw.
type provider struct {
	*local.Provider
	world *world
	flaw  flaw
}

func (p *provider) Create(ctx context.Context, options workspaces.CreateOptions) (workspaces.Created, error) {
	if p.flaw.create != nil {
		return p.flaw.create(ctx, p, options)
	}
	return p.create(ctx, options)
}

func (p *provider) create(ctx context.Context, options workspaces.CreateOptions) (workspaces.Created, error) {
	return p.world.create(ctx, p, options)
}

func (p *provider) Collect(ctx context.Context, options workspaces.CollectOptions) (int, error) {
	if p.flaw.collect != nil {
		return p.flaw.collect(ctx, p, options)
	}
	return p.collect(ctx, options)
}

// A workspace is one of the reference, with a flaw.
type workspace struct {
	inner workspaces.Workspace
	world *world
	flaw  flaw
	state *state
}

func (w *workspace) dir() string {
	dir, _ := workspaces.As[workspaces.HostDir](w.inner)
	return dir.HostDir()
}

func (w *workspace) ID() string      { return w.inner.ID() }
func (w *workspace) HostDir() string { return w.dir() }

func (w *workspace) Info() workspaces.Info {
	info := w.inner.Info()
	info.Image = w.state.image
	if w.flaw.info != nil {
		info = w.flaw.info(w, info)
	}
	return info
}

func (w *workspace) Exec(ctx context.Context, command workspaces.Command) (workspaces.Result, error) {
	w.state.mu.Lock()
	w.state.running++
	w.state.mu.Unlock()
	defer func() {
		w.state.mu.Lock()
		w.state.running--
		w.state.mu.Unlock()
	}()
	if w.flaw.exec != nil {
		return w.flaw.exec(ctx, w, command)
	}
	return w.exec(ctx, command)
}

func (w *workspace) ReadFile(ctx context.Context, path string) ([]byte, error) {
	if w.flaw.read != nil {
		return w.flaw.read(ctx, w, path)
	}
	return w.inner.ReadFile(ctx, path)
}

func (w *workspace) WriteFile(ctx context.Context, path string, data []byte) error {
	if w.flaw.write != nil {
		return w.flaw.write(ctx, w, path, nil, data)
	}
	return w.inner.WriteFile(ctx, path, data)
}

func (w *workspace) WriteFileAt(ctx context.Context, path, at string, data []byte) error {
	if w.flaw.write != nil {
		return w.flaw.write(ctx, w, path, &at, data)
	}
	return w.writeAt(ctx, path, &at, data)
}

func (w *workspace) writeAt(ctx context.Context, path string, at *string, data []byte) error {
	if at == nil {
		return w.inner.WriteFile(ctx, path, data)
	}
	writer, _ := workspaces.As[workspaces.LinkWriter](w.inner)
	return writer.WriteFileAt(ctx, path, *at, data)
}

func (w *workspace) Dispose(ctx context.Context) error {
	if w.flaw.dispose != nil {
		return w.flaw.dispose(ctx, w)
	}
	return w.dispose(ctx)
}

func (w *workspace) dispose(ctx context.Context) error {
	w.state.expiry.Stop()
	err := w.inner.Dispose(ctx)
	w.state.mu.Lock()
	defer w.state.mu.Unlock()
	w.state.disposed = w.state.disposed || err == nil
	return err
}

func (w *workspace) Probe(ctx context.Context) error {
	if w.flaw.probe != nil {
		return w.flaw.probe(ctx, w)
	}
	return w.probe(ctx)
}
