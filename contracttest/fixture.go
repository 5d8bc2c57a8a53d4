package contracttest

import (
	"context"
	"crypto/rand"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/carrel-dev/carrel/workspaces"
)

// A fixture is what one case works with: a provider, a deployment, and managers and runs as it
// wants them. It is the testing.TB of the case.
type fixture struct {
	*recorder

	config     Config
	provider   workspaces.Provider
	deployment string

	patience time.Duration // for what must happen soon
	bound    time.Duration // for everything else

	mu          sync.Mutex
	deployments []string // of the case's managers
	background  []error  // what their OnError got
	tolerant    bool     // it does not matter
	first       *workspaces.Run
}

func newFixture(r *recorder, config Config) *fixture {
	f := &fixture{
		recorder:   r,
		config:     config,
		deployment: "contract-" + strings.ToLower(rand.Text()[:12]),
		patience:   config.Patience,
		bound:      6 * config.Patience,
	}
	f.provider = config.New(f)
	require.NotNil(f, f.provider, "New returned no provider")
	f.Cleanup(func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		if !f.tolerant {
			assert.Empty(f, f.background, "failures in the background")
		}
		for _, deployment := range f.deployments {
			assert.Empty(f, f.leftovers(deployment), "is left of deployment %s", deployment)
		}
	})
	return f
}

func (f *fixture) can(capability Capability) bool { return f.config.can(capability) }

// leftovers lists what exists of a deployment.
func (f *fixture) leftovers(deployment string) []string {
	ctx, cancel := context.WithTimeout(context.Background(), f.bound)
	defer cancel()
	left, err := f.config.Leftovers(ctx, f.provider, deployment)
	assert.NoError(f, err, "Config.Leftovers")
	return left
}

// tolerate says that the case causes failures in the background.
func (f *fixture) tolerate() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.tolerant = true
}

// manager returns a new manager that is closed when the case ends.
func (f *fixture) manager(change func(options *workspaces.Options)) *workspaces.Manager {
	m := f.abandonedManager(f.provider, change)
	f.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), f.bound)
		defer cancel()
		assert.NoError(f, within(f, f.bound+f.patience, "Close", func() error { return m.Close(ctx) }), "close the manager")
	})
	return m
}

// abandonedManager returns a manager that nobody closes, as of a process that dies.
func (f *fixture) abandonedManager(provider workspaces.Provider, change func(options *workspaces.Options)) *workspaces.Manager {
	var options workspaces.Options
	if f.config.Manager != nil {
		f.config.Manager(&options)
	}
	options.Deployment = f.deployment
	options.CollectInterval = -1
	options.OnError = func(err error) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.background = append(f.background, err)
	}
	if change != nil {
		change(&options)
	}
	f.mu.Lock()
	if !slices.Contains(f.deployments, options.Deployment) {
		f.deployments = append(f.deployments, options.Deployment)
	}
	f.mu.Unlock()
	m, err := workspaces.NewManager(provider, options)
	require.NoError(f, err)
	return m
}

const runID = "contract run"

// open opens a run. The manager's Close releases it.
func (f *fixture) open(m *workspaces.Manager, id string) *workspaces.Run {
	run, err := m.Open(id)
	require.NoError(f, err)
	return run
}

// run returns the case's first run.
func (f *fixture) run() *workspaces.Run {
	if f.first == nil {
		f.first = f.open(f.manager(nil), runID)
	}
	return f.first
}

// acquire acquires a workspace that must be had.
func (f *fixture) acquire(run *workspaces.Run, options workspaces.AcquireOptions) workspaces.Workspace {
	acquired, err := f.tryAcquire(f.Context(), run, options)
	require.NoError(f, err, "acquire a workspace")
	return acquired.Workspace
}

func (f *fixture) tryAcquire(ctx context.Context, run *workspaces.Run, options workspaces.AcquireOptions) (workspaces.Acquired, error) {
	type answer struct {
		acquired workspaces.Acquired
		err      error
	}
	got := within(f, 2*f.bound, "Acquire", func() answer {
		acquired, err := run.Acquire(ctx, options)
		return answer{acquired, err}
	})
	return got.acquired, got.err
}

// workspace returns a workspace without a repository of the case's first run.
func (f *fixture) workspace() workspaces.Workspace {
	return f.acquire(f.run(), workspaces.AcquireOptions{})
}

// within returns what call does, and fails the case when that takes longer than limit.
func within[T any](f *fixture, limit time.Duration, what string, call func() T) T {
	f.Helper()
	done := make(chan T, 1)
	go func() { done <- call() }()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case result := <-done:
		return result
	case <-timer.C:
		f.Fatalf("%s has not returned after %s", what, limit)
		panic("unreachable")
	}
}

// eventually waits until condition holds.
func (f *fixture) eventually(limit time.Duration, what string, condition func() bool) {
	f.Helper()
	for deadline := time.Now().Add(limit); !condition(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			f.Fatalf("%s: not so after %s", what, limit)
		}
	}
}

// provided returns the provider's own workspace behind one that a manager handed out.
func (f *fixture) provided(workspace workspaces.Workspace) workspaces.Workspace {
	view, ok := workspace.(interface{ Unwrap() workspaces.Workspace })
	require.True(f, ok, "a manager hands out what can be unwrapped")
	return view.Unwrap()
}

// dispose disposes a workspace that must go.
func (f *fixture) dispose(workspace workspaces.Workspace) {
	require.NoError(f, within(f, f.bound, "Dispose", func() error { return workspace.Dispose(f.Context()) }))
}

// read reads a file that must be there.
func (f *fixture) read(workspace workspaces.Workspace, path string) []byte {
	data, err := f.tryRead(f.Context(), workspace, path)
	require.NoError(f, err)
	return data
}

func (f *fixture) tryRead(ctx context.Context, workspace workspaces.Workspace, path string) ([]byte, error) {
	type answer struct {
		data []byte
		err  error
	}
	got := within(f, f.bound, "ReadFile", func() answer {
		data, err := workspace.ReadFile(ctx, path)
		return answer{data, err}
	})
	return got.data, got.err
}

// write writes a file that can be written.
func (f *fixture) write(workspace workspaces.Workspace, path, content string) {
	require.NoError(f, f.tryWrite(f.Context(), workspace, path, []byte(content)))
}

func (f *fixture) tryWrite(ctx context.Context, workspace workspaces.Workspace, path string, data []byte) error {
	return within(f, f.bound, "WriteFile", func() error { return workspace.WriteFile(ctx, path, data) })
}
