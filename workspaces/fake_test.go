package workspaces

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A fakeProvider makes workspaces in memory. Its hooks may block or fail; nil hooks do neither.
type fakeProvider struct {
	onCreate  func(ctx context.Context, options CreateOptions) error // before anything exists
	onCreated func(ctx context.Context) error                        // after it exists; an error removes it again
	onDispose func(ctx context.Context) error
	onExec    func(ctx context.Context, command Command) (Result, error)
	onProbe   func(ctx context.Context) error
	now       func() time.Time

	creates, disposes atomic.Int64

	mu    sync.Mutex
	exist map[string]*fakeWorkspace
}

func (p *fakeProvider) Name() string { return "fake" }

func (p *fakeProvider) Create(ctx context.Context, options CreateOptions) (Created, error) {
	n := p.creates.Add(1)
	if p.onCreate != nil {
		if err := p.onCreate(ctx, options); err != nil {
			return Created{}, err
		}
	}
	now := time.Now
	if p.now != nil {
		now = p.now
	}
	limits := options.Limits.Over(DefaultLimits())
	w := &fakeWorkspace{
		provider: p, id: fmt.Sprintf("ws-%d", n), files: make(map[string][]byte), options: options,
		info: Info{
			RunID: options.RunID, Image: options.Image, Repository: options.Repository, Ref: options.Ref,
			CreatedAt: now().Add(time.Duration(n)), ExpiresAt: now().Add(limits.Lifetime),
			Resource: map[string]string{"container.id": "c"},
		},
	}
	p.mu.Lock()
	if p.exist == nil {
		p.exist = make(map[string]*fakeWorkspace)
	}
	p.exist[w.id] = w
	p.mu.Unlock()
	if p.onCreated != nil {
		if err := p.onCreated(ctx); err != nil {
			_ = w.Dispose(context.Background())
			return Created{}, err
		}
	}
	return Created{Workspace: w}, nil
}

// left lists what exists.
func (p *fakeProvider) left() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Sorted(maps.Keys(p.exist))
}

type fakeWorkspace struct {
	provider *fakeProvider
	id       string
	info     Info
	options  CreateOptions

	mu    sync.Mutex
	files map[string][]byte
}

func (w *fakeWorkspace) ID() string { return w.id }
func (w *fakeWorkspace) Info() Info { return w.info }

func (w *fakeWorkspace) Exec(ctx context.Context, command Command) (Result, error) {
	if w.provider.onExec != nil && command.Args[0] != "sh" && command.Args[0] != "git" {
		return w.provider.onExec(ctx, command)
	}
	if command.Args[0] == "sh" && ctx.Err() == nil {
		// The script of a checkout: what it prints once it is done.
		_, err := io.WriteString(command.Stdout, "commit "+fakeCommit+"\n")
		return Result{}, err
	}
	return Result{}, ctx.Err()
}

const fakeCommit = "1111111111111111111111111111111111111111"

func (w *fakeWorkspace) ReadFile(_ context.Context, path string) ([]byte, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	data, ok := w.files[path]
	if !ok {
		return nil, fs.ErrNotExist
	}
	return slices.Clone(data), nil
}

func (w *fakeWorkspace) WriteFile(_ context.Context, path string, data []byte) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.files[path] = slices.Clone(data)
	return nil
}

func (w *fakeWorkspace) Dispose(ctx context.Context) error {
	w.provider.disposes.Add(1)
	if w.provider.onDispose != nil {
		if err := w.provider.onDispose(ctx); err != nil {
			return err
		}
	}
	w.provider.mu.Lock()
	defer w.provider.mu.Unlock()
	delete(w.provider.exist, w.id)
	return nil
}

func (w *fakeWorkspace) Probe(ctx context.Context) error {
	if w.provider.onProbe != nil {
		return w.provider.onProbe(ctx)
	}
	return nil
}

// newTestManager returns a manager that is closed, and has left nothing, when the test ends.
func newTestManager(t *testing.T, p *fakeProvider, options Options) *Manager {
	t.Helper()
	if options.CollectInterval == 0 {
		options.CollectInterval = -1
	}
	m, err := NewManager(p, options)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, m.Close(context.Background()))
		require.Empty(t, p.left())
	})
	return m
}

func open(t *testing.T, m *Manager, id string) *Run {
	t.Helper()
	run, err := m.Open(id)
	require.NoError(t, err)
	return run
}

func acquire(t *testing.T, run *Run, repository string) Workspace {
	t.Helper()
	got, err := run.Acquire(t.Context(), AcquireOptions{Repository: repository})
	require.NoError(t, err)
	return got.Workspace
}

// waitUntil waits for a condition that another goroutine brings about.
func waitUntil(t *testing.T, condition func() bool) {
	t.Helper()
	require.Eventually(t, condition, 30*time.Second, time.Millisecond)
}
