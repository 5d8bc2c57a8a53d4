package lifecycle_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cloudwego/eino/adk"
	"github.com/cloudwego/eino/compose"
	"github.com/cloudwego/eino/schema"
	"github.com/stretchr/testify/require"

	"github.com/carrel-dev/carrel/lifecycle"
	"github.com/carrel-dev/carrel/workspaces"
)

// An ADK cancel leaves the tool that runs alone. With Events the run is released as cancelled before the caller hears of it,
// without it counts as interrupted; in both cases the command is stopped, and the straggler creates nothing.
func TestADKCancelled_L4_M5(t *testing.T) {
	eachAgent(t, func(t *testing.T, m mode) {
		p := newPlace(t)
		running, late := make(chan struct{}), make(chan error, 1)
		s := m.make(t, func(ctx context.Context) (string, error) {
			err := occupy(ctx, running)
			alive := ctx.Err()
			_, again := acquire(ctx)
			late <- errors.Join(alive, again)
			return "", err
		})
		option, cancel := adk.WithCancel()
		go func() {
			<-running
			cancel(adk.WithAgentCancelMode(adk.CancelImmediate), adk.WithRecursive())
		}()
		_, err := m.run(m.context(), s, p.hook, option)
		var cancelled *adk.CancelError
		require.ErrorAs(t, err, &cancelled)
		if m.events {
			p.requireSettled(t, false, workspaces.Cancelled)
		}
		again := <-late
		require.ErrorIs(t, again, workspaces.ErrRunEnded)
		require.NotErrorIs(t, again, context.Canceled, "the tool's context stays live")
		_, _, stopped := p.provider.counts()
		require.Equal(t, 1, stopped)
		if m.events {
			p.requireSettled(t, false, workspaces.Cancelled)
		} else {
			p.requireKept(t, 1)
		}
	})
}

// KeepOnCancel: the run goes on in its workspace when it is resumed from the cancel's checkpoint.
func TestKeepOnCancel_L4(t *testing.T) {
	p := newPlace(t)
	running, ids := make(chan struct{}), []string{}
	a := agent(t, "worker", script(call("act"), call("act"), answer()), act(func(ctx context.Context) (string, error) {
		workspace, err := acquire(ctx)
		if err != nil {
			return "", err
		}
		if ids = append(ids, workspace.ID()); len(ids) > 1 {
			return "ok", nil
		}
		close(running)
		_, err = workspace.Exec(ctx, workspaces.Command{Args: []string{"wait"}})
		return "", err
	}))
	store := &checkpoints{}
	ctx := lifecycle.WithRunID(context.Background(), "")
	runner := adk.NewRunner(ctx, adk.RunnerConfig{Agent: a, CheckPointStore: store})
	option, cancel := adk.WithCancel()
	events := lifecycle.Events(ctx, runner.Query(ctx, "go", option, adk.WithCallbacks(p.hook), adk.WithCheckPointID("cp")), lifecycle.KeepOnCancel())
	<-running
	cancel(adk.WithAgentCancelMode(adk.CancelImmediate))
	_, err := consume(events)
	var cancelled *adk.CancelError
	require.ErrorAs(t, err, &cancelled)
	p.requireKept(t, 1)

	ctx = lifecycle.WithRunID(context.Background(), "") // the session knows better
	resumed, err := runner.Resume(ctx, "cp", adk.WithCallbacks(p.hook))
	require.NoError(t, err)
	_, err = consume(lifecycle.Events(ctx, resumed, lifecycle.KeepOnCancel()))
	require.NoError(t, err)
	require.Len(t, ids, 2)
	require.Equal(t, ids[0], ids[1])
	p.requireSettled(t, false, workspaces.Completed)
}

// An agent that is cancelled before it has begun ends as one that was cancelled later.
func TestADKCancelledEarly_L4(t *testing.T) {
	for _, keep := range []bool{false, true} {
		p := newPlace(t)
		run, err := p.manager.Open("early") // what an earlier turn left
		require.NoError(t, err)
		_, err = run.Acquire(t.Context(), workspaces.AcquireOptions{})
		require.NoError(t, err)
		require.NoError(t, run.Release(t.Context(), workspaces.Interrupted))

		option, cancel := adk.WithCancel()
		cancel()
		ctx := lifecycle.WithRunID(context.Background(), "early")
		runner := adk.NewRunner(ctx, adk.RunnerConfig{Agent: worker(t, "worker", nil)})
		var options []lifecycle.EventsOption
		if keep {
			options = append(options, lifecycle.KeepOnCancel())
		}
		_, err = consume(lifecycle.Events(ctx, runner.Query(ctx, "go", option, adk.WithCallbacks(p.hook)), options...))
		var cancelled *adk.CancelError
		require.ErrorAs(t, err, &cancelled)
		if keep {
			p.requireKept(t, 1)
		} else {
			p.requireSettled(t, false, workspaces.Cancelled)
		}
	}
}

// A streamed run is over when its producer ends, not when its reader does.
func TestStreamEndsWithItsProducer_L5(t *testing.T) {
	p := newPlace(t)
	reader, writer := schema.Pipe[string](1)
	g := compose.NewGraph[string, string]()
	require.NoError(t, g.AddLambdaNode("act", compose.StreamableLambda(func(ctx context.Context, _ string) (*schema.StreamReader[string], error) {
		_, err := acquire(ctx)
		return reader, err
	})))
	require.NoError(t, g.AddEdge(compose.START, "act"))
	require.NoError(t, g.AddEdge("act", compose.END))
	out, err := compiled(t, g).graph.Stream(context.Background(), "go", compose.WithCallbacks(p.hook))
	require.NoError(t, err)
	writer.Send("some", nil)
	_, err = out.Recv()
	require.NoError(t, err)
	out.Close()
	writer.Send("more", nil)
	require.False(t, writer.Send("and more", nil), "the hook's copy goes on")
	p.requireKept(t, 1)
	writer.Close()
	p.requireSettled(t, true, workspaces.Completed)
}

// A reader who closes early cancels the context. A producer that heeds it ends the run.
func TestStreamClosedEarly_L5(t *testing.T) {
	p := newPlace(t)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	g := compose.NewGraph[string, string]()
	require.NoError(t, g.AddLambdaNode("act", compose.StreamableLambda(func(ctx context.Context, _ string) (*schema.StreamReader[string], error) {
		reader, writer := schema.Pipe[string](1)
		_, err := acquire(ctx)
		go func() {
			defer writer.Close()
			writer.Send("some", nil)
			<-ctx.Done()
			writer.Send("", ctx.Err())
		}()
		return reader, err
	})))
	require.NoError(t, g.AddEdge(compose.START, "act"))
	require.NoError(t, g.AddEdge("act", compose.END))
	out, err := compiled(t, g).graph.Stream(ctx, "go", compose.WithCallbacks(p.hook))
	require.NoError(t, err)
	out.Close()
	p.requireKept(t, 1)
	cancel()
	p.requireSettled(t, true, workspaces.Cancelled)
}

// A component that does not heed the end of its context is left behind after ten seconds.
func TestContextIgnored_L4(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlace(t)
		ctx, cancel := context.WithCancel(context.Background())
		goOn, late := make(chan struct{}), error(nil)
		s := compiled(t, oneNode(t, func(ctx context.Context) (string, error) {
			_, err := acquire(ctx)
			cancel()
			<-goOn
			_, late = workspaces.RunFromContext(ctx).Acquire(context.WithoutCancel(ctx), workspaces.AcquireOptions{})
			return "ok", err
		}))
		done := make(chan error, 1)
		go func() {
			_, err := s.graph.Invoke(ctx, "go", compose.WithCallbacks(p.hook))
			done <- err
		}()
		time.Sleep(9 * time.Second)
		p.requireKept(t, 1)
		time.Sleep(2 * time.Second)
		p.requireSettled(t, false, workspaces.Cancelled)
		close(goOn)
		require.NoError(t, <-done)
		require.ErrorIs(t, late, workspaces.ErrRunEnded)
		p.requireSettled(t, false, workspaces.Cancelled)
	})
}

// Whoever cancels the context after the end of the run changes nothing about how it ended.
func TestContextCancelledAfterwards_L4(t *testing.T) {
	eachAgent(t, func(t *testing.T, m mode) {
		p := newPlace(t)
		ctx, cancel := context.WithCancel(m.context())
		s := m.make(t, func(ctx context.Context) (string, error) {
			_, err := acquire(ctx)
			return "ok", err
		})
		_, err := m.run(ctx, s, p.hook)
		cancel()
		require.NoError(t, err)
		p.requireSettled(t, m.background(), workspaces.Completed)
	})
}

// An Invoke waits for the disposal of its workspaces for ten seconds; then that goes on in the background.
func TestSlowDisposal_L3(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlace(t)
		p.provider.disposing = func() error {
			time.Sleep(25 * time.Second)
			return nil
		}
		s := compiled(t, oneNode(t, func(ctx context.Context) (string, error) {
			_, err := acquire(ctx)
			return "ok", err
		}))
		began := time.Now()
		_, err := s.graph.Invoke(context.Background(), "go", compose.WithCallbacks(p.hook))
		require.NoError(t, err)
		require.Equal(t, 10*time.Second, time.Since(began))
		_, disposes, _ := p.provider.counts()
		require.Zero(t, disposes)
		time.Sleep(16 * time.Second)
		p.requireSettled(t, false, workspaces.Completed)
	})
}

// A failed disposal is reported and left to the manager.
func TestFailedDisposal_L3(t *testing.T) {
	p := newPlace(t)
	broken := errors.New("the disk is on fire")
	p.provider.disposing = func() error { return broken }
	s := compiled(t, oneNode(t, func(ctx context.Context) (string, error) {
		_, err := acquire(ctx)
		return "ok", err
	}))
	_, err := s.graph.Invoke(context.Background(), "go", compose.WithCallbacks(p.hook))
	require.NoError(t, err, "the run itself completed")
	require.ErrorIs(t, p.reported(), broken)
	require.Equal(t, []workspaces.Outcome{workspaces.Completed}, p.settled())
	p.provider.disposing = nil
	require.NoError(t, p.manager.Close(t.Context()))
	_, disposes, _ := p.provider.counts()
	require.Equal(t, 1, disposes)
}
