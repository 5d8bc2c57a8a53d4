package lifecycle_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/carrel-dev/carrel/lifecycle"
	"github.com/carrel-dev/carrel/workspaces"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A memory is a provider whose workspaces are entries of a map. "wait" is a command that runs until it is stopped.
type memory struct {
	disposing func() error // before a disposal; nil: nothing
	now       func() time.Time

	mu                         sync.Mutex
	creates, disposes, stopped int
}

func (p *memory) Name() string { return "memory" }

func (p *memory) Create(_ context.Context, options workspaces.CreateOptions) (workspaces.Created, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.creates++
	now := p.now()
	return workspaces.Created{Workspace: &drawer{
		provider: p, id: fmt.Sprintf("ws-%d", p.creates),
		info: workspaces.Info{Repository: options.Repository, CreatedAt: now, ExpiresAt: now.Add(time.Hour)},
	}}, nil
}

func (p *memory) counts() (creates, disposes, stopped int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.creates, p.disposes, p.stopped
}

type drawer struct {
	provider *memory
	id       string
	info     workspaces.Info
}

func (w *drawer) ID() string            { return w.id }
func (w *drawer) Info() workspaces.Info { return w.info }

func (w *drawer) Exec(ctx context.Context, command workspaces.Command) (workspaces.Result, error) {
	if command.Args[0] != "wait" {
		_, err := io.WriteString(command.Stdout, "commit\n") // the script of a checkout
		return workspaces.Result{}, err
	}
	<-ctx.Done()
	w.provider.mu.Lock()
	defer w.provider.mu.Unlock()
	w.provider.stopped++
	return workspaces.Result{}, ctx.Err()
}

func (w *drawer) ReadFile(context.Context, string) ([]byte, error) { return nil, fs.ErrNotExist }
func (w *drawer) WriteFile(context.Context, string, []byte) error  { return nil }

func (w *drawer) Dispose(context.Context) error {
	if w.provider.disposing != nil {
		if err := w.provider.disposing(); err != nil {
			return err
		}
	}
	w.provider.mu.Lock()
	defer w.provider.mu.Unlock()
	w.provider.disposes++
	return nil
}

// A place is a manager, a hook, and what became of the runs.
type place struct {
	provider *memory
	manager  *workspaces.Manager
	hook     *lifecycle.Hook

	mu       sync.Mutex
	runs     []string // that lost their workspaces, in that order
	outcomes []workspaces.Outcome
	failures []error
}

func newPlace(t *testing.T) *place {
	t.Helper()
	p := &place{provider: &memory{now: time.Now}}
	var err error
	p.manager, err = workspaces.NewManager(p.provider, workspaces.Options{
		CollectInterval: -1,
		Now:             func() time.Time { return p.provider.now() },
		BeforeRelease: func(_ context.Context, run string, outcome workspaces.Outcome, _ []workspaces.Workspace) {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.runs, p.outcomes = append(p.runs, run), append(p.outcomes, outcome)
		},
	})
	require.NoError(t, err)
	p.hook = p.newHook()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		require.NoError(t, p.hook.Drain(ctx))
		require.NoError(t, p.manager.Close(ctx))
	})
	return p
}

func (p *place) newHook() *lifecycle.Hook {
	return lifecycle.New(p.manager, lifecycle.OnError(func(err error) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.failures = append(p.failures, err)
	}))
}

func (p *place) settled() []workspaces.Outcome {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.outcomes)
}

func (p *place) settledRuns() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.runs)
}

func (p *place) reported() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return errors.Join(p.failures...)
}

// requireKept wants so many workspaces alive and no run settled.
func (p *place) requireKept(t *testing.T, live int) {
	t.Helper()
	creates, disposes, _ := p.provider.counts()
	require.Equal(t, live, p.manager.Live())
	require.Equal(t, live, creates)
	require.Zero(t, disposes)
	require.Empty(t, p.settled())
	require.NoError(t, p.reported())
}

// requireSettled wants every workspace gone, each run settled by its outcome. background: that may still be under way.
func (p *place) requireSettled(t *testing.T, background bool, outcomes ...workspaces.Outcome) {
	t.Helper()
	if background {
		waitUntil(t, func() bool {
			creates, disposes, _ := p.provider.counts()
			return creates == disposes && len(p.settled()) >= len(outcomes)
		})
	}
	creates, disposes, _ := p.provider.counts()
	require.Equal(t, outcomes, p.settled())
	require.Equal(t, len(outcomes), creates, "one workspace a run")
	require.Equal(t, creates, disposes)
	require.Zero(t, p.manager.Live())
	require.NoError(t, p.reported())
}

// waitUntil waits for a condition that another goroutine brings about.
func waitUntil(t *testing.T, condition func() bool) {
	t.Helper()
	require.Eventually(t, condition, 30*time.Second, time.Millisecond)
}

// acquire takes the run's workspace, as a tool does.
func acquire(ctx context.Context) (workspaces.Workspace, error) {
	run := workspaces.RunFromContext(ctx)
	if run == nil {
		return nil, errors.New("no run in the context")
	}
	acquired, err := run.Acquire(ctx, workspaces.AcquireOptions{})
	return acquired.Workspace, err
}

// occupy takes the run's workspace and runs a command in it that never ends.
func occupy(ctx context.Context, running chan<- struct{}) error {
	workspace, err := acquire(ctx)
	if err != nil {
		return err
	}
	close(running)
	_, err = workspace.Exec(ctx, workspaces.Command{Args: []string{"wait"}})
	return err
}

// checkpoints keeps them in memory, as bytes.
type checkpoints struct {
	mu   sync.Mutex
	byID map[string][]byte
}

func (c *checkpoints) Get(_ context.Context, id string) ([]byte, bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	data, ok := c.byID[id]
	return data, ok, nil
}

func (c *checkpoints) Set(_ context.Context, id string, data []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.byID == nil {
		c.byID = make(map[string][]byte)
	}
	c.byID[id] = data
	return nil
}
