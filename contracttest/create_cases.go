package contracttest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/carrel-dev/carrel/workspaces"
)

func createCases() []Case {
	return []Case{
		{ID: "M1-one-per-key", Rule: "Acquires of one key at the same time share one workspace; another run gets another.", run: onePerKeyCase},
		{ID: "W1-info", Rule: "What is known of a workspace says whose it is, when it was made and when it expires.", run: infoCase},
		{ID: "C55-cancel-create", Rule: "A create that is cancelled at any moment leaves nothing, and the next one works.", run: cancelCreateCase},
		{ID: "M11-refused-create", Rule: "The provider itself makes nothing when its context has ended.", run: refusedCreateCase},
	}
}

func onePerKeyCase(f *fixture) {
	m := f.manager(nil)
	run := f.open(m, runID)
	type answer struct {
		acquired workspaces.Acquired
		err      error
	}
	answers := make([]answer, 5)
	var all sync.WaitGroup
	for i := range answers {
		all.Go(func() {
			acquired, err := run.Acquire(f.Context(), workspaces.AcquireOptions{})
			answers[i] = answer{acquired, err}
		})
	}
	within(f, 2*f.bound, "some Acquire", func() bool { all.Wait(); return true })
	fresh := 0
	for _, a := range answers {
		require.NoError(f, a.err)
		require.Equal(f, answers[0].acquired.Workspace.ID(), a.acquired.Workspace.ID())
		if !a.acquired.Reused {
			fresh++
		}
	}
	require.Equal(f, 1, fresh)
	f.write(answers[0].acquired.Workspace, "f", "x")
	require.Equal(f, "x", string(f.read(answers[4].acquired.Workspace, "f")))

	other := f.acquire(f.open(m, "another run"), workspaces.AcquireOptions{})
	require.NotEqual(f, answers[0].acquired.Workspace.ID(), other.ID())
	require.Equal(f, ".git\n", f.shell(other, "ls -A"))
}

func infoCase(f *fixture) {
	before := time.Now()
	w := f.acquire(f.run(), workspaces.AcquireOptions{Limits: workspaces.Limits{Lifetime: time.Hour}})
	after := time.Now()
	info := w.Info()
	require.NotEmpty(f, w.ID())
	require.Equal(f, runID, info.RunID)
	require.Equal(f, f.provider.Name(), info.Provider)
	require.NotEmpty(f, f.provider.Name())
	require.Empty(f, info.Repository+info.Ref+info.Commit)
	require.NotEmpty(f, info.Resource, "what the thing behind is called")
	require.Equal(f, f.can(Images), info.Image != "")
	// The clock of an engine may be another, or be told in seconds.
	const slack = 2 * time.Second
	require.False(f, info.CreatedAt.Before(before.Add(-slack)) || info.CreatedAt.After(after.Add(slack)), "created at %s", info.CreatedAt)
	require.InDelta(f, time.Hour, info.ExpiresAt.Sub(info.CreatedAt), float64(slack+after.Sub(before)))

	// What the caller does to it is the caller's.
	info.Resource["x"] = "y"
	require.NotContains(f, w.Info().Resource, "x")
	inner := f.provided(w).Info()
	require.Equal(f, runID, inner.RunID)
	require.Equal(f, f.provider.Name(), inner.Provider)
	inner.Resource["x"] = "y"
	require.NotContains(f, f.provided(w).Info().Resource, "x")
}

// A canceller cancels a create when the observed operation starts.
type canceller struct {
	at     workspaces.OperationKind
	cancel context.CancelFunc
}

func (c canceller) Start(ctx context.Context, operation workspaces.Operation) context.Context {
	if operation.Kind == c.at {
		c.cancel()
	}
	return ctx
}

func (c canceller) End(context.Context, workspaces.Operation, workspaces.OperationOutcome) {}

func cancelCreateCase(f *fixture) {
	f.tolerate()
	try := func(name string, at workspaces.OperationKind, after time.Duration) {
		ctx, cancel := context.WithCancel(f.Context())
		defer cancel()
		var observer workspaces.Observer
		if at != "" {
			observer = canceller{at, cancel}
		} else {
			time.AfterFunc(after, cancel)
		}
		m := f.abandonedManager(f.provider, func(o *workspaces.Options) { o.Observer = observer })
		run := f.open(m, "run "+name)
		acquired, err := f.tryAcquire(ctx, run, workspaces.AcquireOptions{})
		if err == nil && at == "" {
			f.dispose(acquired.Workspace)
		} else {
			require.ErrorIs(f, err, context.Canceled, name)
		}
		closing, stop := context.WithTimeout(context.Background(), f.bound)
		defer stop()
		require.NoError(f, within(f, f.bound+f.patience, "Close", func() error { return m.Close(closing) }), name)
		require.Empty(f, f.leftovers(f.deployment), name)
	}
	for _, at := range []workspaces.OperationKind{workspaces.OperationCreate, workspaces.OperationCheckout, workspaces.OperationExec} {
		try("cancelled at "+string(at), at, 0)
	}
	for _, after := range []int{0, 1, 2, 5, 10, 20, 50, 100, 200} {
		try(fmt.Sprintf("cancelled after %d ms", after), "", time.Duration(after)*time.Millisecond)
	}
	// And of the same key, at once.
	run := f.run()
	ctx, cancel := context.WithCancel(f.Context())
	time.AfterFunc(5*time.Millisecond, cancel)
	if _, err := f.tryAcquire(ctx, run, workspaces.AcquireOptions{}); err != nil {
		require.ErrorIs(f, err, context.Canceled)
	}
	require.Equal(f, "on\n", f.shell(f.workspace(), "echo on"))
}

func refusedCreateCase(f *fixture) {
	f.run() // for the check of what is left
	ctx, cancel := context.WithCancelCause(f.Context())
	cancel(errors.New("for the test"))
	err := within(f, f.bound, "Create", func() error {
		_, err := f.provider.Create(ctx, workspaces.CreateOptions{
			Name: "0123456789abcdef01234567", RunID: runID, Deployment: f.deployment, RepositoryKey: "none",
		})
		return err
	})
	require.ErrorIs(f, err, context.Canceled)
	require.Empty(f, f.leftovers(f.deployment))
}
