package lifecycle_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cloudwego/eino/adk"
	"github.com/cloudwego/eino/compose"
	"github.com/stretchr/testify/require"

	"github.com/carrel-dev/carrel/lifecycle"
	"github.com/carrel-dev/carrel/workspaces"
)

// Drain waits for what is open and refuses what is new: tools in it get ErrRunEnded, and OnError and Events say why.
func TestDrain_L7(t *testing.T) {
	p := newPlace(t)
	require.NoError(t, p.newHook().Drain(ended()), "nothing is open")

	started, goOn := make(chan struct{}), make(chan struct{})
	var ends sync.WaitGroup
	ends.Go(func() {
		s := compiled(t, oneNode(t, func(ctx context.Context) (string, error) {
			close(started)
			<-goOn
			return working(ctx) // what has begun may still take a workspace
		}))
		_, err := s.graph.Invoke(context.Background(), "go", compose.WithCallbacks(p.hook))
		require.NoError(t, err)
	})
	<-started
	err := p.hook.Drain(ended())
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorContains(t, err, "1 runs are still open")

	var refused error
	refusing := act(func(ctx context.Context) (string, error) {
		_, refused = acquire(ctx)
		return "ok", nil
	})
	_, err = compiled(t, oneNode(t, refusing)).graph.Invoke(context.Background(), "go", compose.WithCallbacks(p.hook))
	require.NoError(t, err, "a run that needs no workspace goes on without")
	require.ErrorIs(t, refused, workspaces.ErrRunEnded)
	require.ErrorIs(t, p.reported(), lifecycle.ErrDraining)

	ctx := lifecycle.WithRunID(context.Background(), "late")
	runner := adk.NewRunner(ctx, adk.RunnerConfig{Agent: worker(t, "worker", refusing)})
	_, err = consume(lifecycle.Events(ctx, runner.Query(ctx, "go", adk.WithCallbacks(p.hook))))
	require.ErrorIs(t, err, lifecycle.ErrDraining)
	p.mu.Lock()
	p.failures = nil
	p.mu.Unlock()

	drained := make(chan error, 1)
	go func() { drained <- p.hook.Drain(t.Context()) }()
	close(goOn)
	require.NoError(t, <-drained)
	p.requireSettled(t, false, workspaces.Completed)
	ends.Wait()
	require.NoError(t, p.hook.Drain(ended()), "again")
}

// Drain waits for the release of a run, too.
func TestDrainWaitsForRelease_L7(t *testing.T) {
	p := newPlace(t)
	disposing, goOn := make(chan struct{}), make(chan struct{})
	p.provider.disposing = func() error {
		close(disposing)
		<-goOn
		return nil
	}
	runner := adk.NewRunner(t.Context(), adk.RunnerConfig{Agent: worker(t, "worker", working)})
	_, err := consume(runner.Query(context.Background(), "go", adk.WithCallbacks(p.hook)))
	require.NoError(t, err)
	<-disposing
	require.ErrorIs(t, p.hook.Drain(ended()), context.Canceled)
	close(goOn)
	require.NoError(t, p.hook.Drain(t.Context()))
	p.requireSettled(t, false, workspaces.Completed)
}

// A run that cannot be opened is none: a closed manager, an id that breaks the rules.
func TestNoRun_L1_L7(t *testing.T) {
	for name, test := range map[string]struct {
		id     string
		closed bool
		want   error
	}{
		"closed manager": {"fine", true, workspaces.ErrClosed},
		"bad id":         {"not\nfine", false, workspaces.ErrInvalidInput},
		"long id":        {strings.Repeat("x", 257), false, workspaces.ErrInvalidInput},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlace(t)
			if test.closed {
				require.NoError(t, p.manager.Close(t.Context()))
			}
			var tool error
			a := worker(t, "worker", func(ctx context.Context) (string, error) {
				_, tool = acquire(ctx)
				return "ok", nil
			})
			ctx := lifecycle.WithRunID(context.Background(), test.id)
			runner := adk.NewRunner(ctx, adk.RunnerConfig{Agent: a})
			_, err := consume(lifecycle.Events(ctx, runner.Query(ctx, "go", adk.WithCallbacks(p.hook))))
			require.ErrorIs(t, err, test.want)
			require.ErrorIs(t, tool, workspaces.ErrRunEnded)
			require.ErrorIs(t, p.reported(), test.want)
			require.Less(t, len(err.Error()), 400)
			creates, _, _ := p.provider.counts()
			require.Zero(t, creates)
		})
	}
}

// Without the run's context Events says so, first, and passes everything on all the same.
func TestEventsWithoutRun_L4(t *testing.T) {
	p := newPlace(t)
	for name, test := range map[string]struct {
		start, events func() context.Context
		options       []adk.AgentRunOption
	}{
		"no name":       {context.Background, context.Background, []adk.AgentRunOption{adk.WithCallbacks(p.hook)}},
		"another name":  {context.Background, func() context.Context { return lifecycle.WithRunID(context.Background(), "") }, []adk.AgentRunOption{adk.WithCallbacks(p.hook)}},
		"no hook there": {nil, func() context.Context { return lifecycle.WithRunID(context.Background(), "") }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			ctx := test.events()
			start := ctx
			if test.start != nil {
				start = test.start()
			}
			runner := adk.NewRunner(start, adk.RunnerConfig{Agent: agent(t, "talker", script(answer()))})
			events := lifecycle.Events(ctx, runner.Query(start, "go", test.options...))
			event, ok := events.Next()
			require.True(t, ok)
			require.ErrorIs(t, event.Err, workspaces.ErrInvalidInput)
			event, ok = events.Next()
			require.True(t, ok)
			require.Equal(t, "done", event.Output.MessageOutput.Message.Content)
			_, ok = events.Next()
			require.False(t, ok)
		})
	}
}

// What Events ends with is there when it has ended: what BeforeRelease took out, say.
func TestEventsWaitsForRelease_L4(t *testing.T) {
	p := newPlace(t)
	p.provider.disposing = func() error {
		time.Sleep(50 * time.Millisecond)
		return nil
	}
	ctx := lifecycle.WithRunID(context.Background(), "")
	runner := adk.NewRunner(ctx, adk.RunnerConfig{Agent: worker(t, "worker", working)})
	_, err := consume(lifecycle.Events(ctx, runner.Query(ctx, "go", adk.WithCallbacks(p.hook))))
	require.NoError(t, err)
	p.requireSettled(t, false, workspaces.Completed)
}

func ended() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}
