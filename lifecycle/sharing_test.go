package lifecycle_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cloudwego/eino/adk"
	"github.com/cloudwego/eino/components/tool"
	"github.com/cloudwego/eino/compose"
	"github.com/stretchr/testify/require"

	"github.com/carrel-dev/carrel/lifecycle"
	"github.com/carrel-dev/carrel/workspaces"
)

func working(ctx context.Context) (string, error) {
	_, err := acquire(ctx)
	return "ok", err
}

// Executions under one id share the run. The last one to end settles it, with its own outcome.
func TestOneID_L1(t *testing.T) {
	for _, one := range []bool{true, false} {
		p := newPlace(t)
		ctx := lifecycle.WithRunID(context.Background(), "the run")
		other := ctx
		if !one {
			other = lifecycle.WithRunID(context.Background(), "the run")
		}
		started, goOn := make(chan struct{}), make(chan struct{})
		var first, second string
		var failed error
		var ends sync.WaitGroup
		ends.Go(func() {
			s := compiled(t, oneNode(t, func(ctx context.Context) (string, error) {
				workspace, err := acquire(ctx)
				first = workspace.ID()
				close(started)
				<-goOn
				return "", errors.Join(err, errors.New("the first fails last"))
			}))
			_, failed = s.graph.Invoke(ctx, "go", compose.WithCallbacks(p.hook))
		})
		<-started
		s := compiled(t, oneNode(t, func(ctx context.Context) (string, error) {
			workspace, err := acquire(ctx)
			second = workspace.ID()
			return "ok", err
		}))
		_, err := s.graph.Invoke(other, "go", compose.WithCallbacks(p.hook))
		require.NoError(t, err)
		p.requireKept(t, 1)
		close(goOn)
		ends.Wait()
		require.ErrorContains(t, failed, "the first fails last")
		require.Equal(t, first, second)
		p.requireSettled(t, false, workspaces.Failed)
		require.Equal(t, []string{"the run"}, p.settledRuns())
	}
}

// One of two executions is cancelled: its command is stopped and its handle ended, the other goes on.
func TestOneOfTwoCancelled_L1_L4(t *testing.T) {
	p := newPlace(t)
	running, started, goOn := make(chan struct{}), make(chan struct{}), make(chan struct{})
	var ends sync.WaitGroup
	ends.Go(func() {
		s := compiled(t, oneNode(t, func(ctx context.Context) (string, error) {
			_, err := acquire(ctx)
			close(started)
			<-goOn
			if _, again := acquire(ctx); again != nil {
				return "", again
			}
			return "ok", err
		}))
		_, err := s.graph.Invoke(lifecycle.WithRunID(context.Background(), "the run"), "go", compose.WithCallbacks(p.hook))
		require.NoError(t, err)
	})
	<-started
	ctx := lifecycle.WithRunID(context.Background(), "the run")
	option, cancel := adk.WithCancel()
	runner := adk.NewRunner(ctx, adk.RunnerConfig{Agent: worker(t, "worker", func(ctx context.Context) (string, error) { return "", occupy(ctx, running) })})
	events := lifecycle.Events(ctx, runner.Query(ctx, "go", option, adk.WithCallbacks(p.hook)))
	<-running
	cancel()
	_, err := consume(events)
	var cancelled *adk.CancelError
	require.ErrorAs(t, err, &cancelled)
	p.requireKept(t, 1)
	_, _, stopped := p.provider.counts()
	require.Equal(t, 1, stopped)
	close(goOn)
	ends.Wait()
	p.requireSettled(t, false, workspaces.Completed)
}

// Under one context Events cannot tell two executions apart: it leaves alone what may be the other one.
func TestTwoUnderOneContext_L1_L4(t *testing.T) {
	p := newPlace(t)
	ctx := lifecycle.WithRunID(context.Background(), "")
	running, started, goOn := make(chan struct{}), make(chan struct{}), make(chan struct{})
	option, cancel := adk.WithCancel()
	runner := adk.NewRunner(ctx, adk.RunnerConfig{Agent: worker(t, "first", func(ctx context.Context) (string, error) { return "", occupy(ctx, running) })})
	first := runner.Query(ctx, "go", option, adk.WithCallbacks(p.hook))
	<-running
	runner = adk.NewRunner(ctx, adk.RunnerConfig{Agent: worker(t, "second", func(ctx context.Context) (string, error) {
		close(started)
		<-goOn
		return working(ctx)
	})})
	second := runner.Query(ctx, "go", adk.WithCallbacks(p.hook))
	<-started
	first = lifecycle.Events(ctx, first) // finds the second
	cancel()
	_, err := consume(first)
	var cancelled *adk.CancelError
	require.ErrorAs(t, err, &cancelled)
	waitUntil(t, func() bool { _, _, stopped := p.provider.counts(); return stopped == 1 })
	p.requireKept(t, 1)
	close(goOn)
	_, err = consume(lifecycle.Events(ctx, second))
	require.NoError(t, err)
	require.NoError(t, p.hook.Drain(t.Context()))
	p.requireSettled(t, false, workspaces.Completed)
}

// Runs that nobody named do not share anything.
func TestUnnamed_L1(t *testing.T) {
	p := newPlace(t)
	s := compiled(t, oneNode(t, working))
	for range 2 {
		_, err := s.graph.Invoke(context.Background(), "go", compose.WithCallbacks(p.hook))
		require.NoError(t, err)
	}
	p.requireSettled(t, false, workspaces.Completed, workspaces.Completed)
	runs := p.settledRuns()
	require.NotEqual(t, runs[0], runs[1])
}

// A run that somebody opened himself is his: the hook settles nothing, over several turns.
func TestOpenedRun_L2(t *testing.T) {
	each(t, func(t *testing.T, m mode) {
		p := newPlace(t)
		run, err := p.manager.Open("a chat")
		require.NoError(t, err)
		ctx := workspaces.ContextWithRun(m.context(), run)
		for range 2 {
			_, err = m.run(ctx, m.make(t, working), p.hook)
			require.NoError(t, err)
		}
		failing := m.make(t, func(context.Context) (string, error) { return "", errors.New("the act failed") })
		_, err = m.run(ctx, failing, p.hook)
		require.ErrorContains(t, err, "the act failed")
		require.NoError(t, p.hook.Drain(t.Context()))
		p.requireKept(t, 1)
		require.NoError(t, run.Release(t.Context(), workspaces.Cancelled))
		p.requireSettled(t, false, workspaces.Cancelled)
	})
}

// WithRunID names the run, also one within another.
func TestWithRunID_L2(t *testing.T) {
	each(t, func(t *testing.T, m mode) {
		p := newPlace(t)
		_, err := m.run(lifecycle.WithRunID(context.Background(), "mine"), m.make(t, working), p.hook)
		require.NoError(t, err)
		p.requireSettled(t, m.background(), workspaces.Completed)
		require.Equal(t, []string{"mine"}, p.settledRuns())
	})

	t.Run("within another run", func(t *testing.T) {
		p := newPlace(t)
		inner := compiled(t, oneNode(t, working))
		outer := compiled(t, oneNode(t, func(ctx context.Context) (string, error) {
			if _, err := acquire(ctx); err != nil {
				return "", err
			}
			// An empty name starts nothing new here.
			if _, err := inner.graph.Invoke(lifecycle.WithRunID(ctx, ""), "go"); err != nil {
				return "", err
			}
			if len(p.settled()) > 0 {
				return "", errors.New("the nested graph settled the run")
			}
			return inner.graph.Invoke(lifecycle.WithRunID(ctx, "inner"), "go")
		}))
		_, err := outer.graph.Invoke(lifecycle.WithRunID(context.Background(), "outer"), "go", compose.WithCallbacks(p.hook))
		require.NoError(t, err)
		require.Equal(t, []string{"inner", "outer"}, p.settledRuns())
		p.requireSettled(t, false, workspaces.Completed, workspaces.Completed)
	})
}

// An agent that transfers to one that does not exist has failed.
func TestTransferToNobody_L1(t *testing.T) {
	for _, events := range []bool{true, false} {
		p := newPlace(t)
		first := agent(t, "first", script(call("act"), call(adk.TransferToAgentToolName)), act(working))
		a, err := adk.SetSubAgents(context.Background(), first, []adk.Agent{agent(t, "somebody", script(answer()))})
		require.NoError(t, err)
		m := mode{kind: kind{isAgent: true}, events: events}
		_, err = m.run(m.context(), &subject{agent: a}, p.hook)
		require.ErrorContains(t, err, "not found")
		p.requireSettled(t, !events, workspaces.Failed)
	}
}

// The agent that is transferred to decides how the run ends, also when that was transferred to in turn.
func TestTransferChain_L1(t *testing.T) {
	for _, events := range []bool{true, false} {
		p := newPlace(t)
		ctx := context.Background()
		var ids []string
		work := act(func(ctx context.Context) (string, error) {
			workspace, err := acquire(ctx)
			ids = append(ids, workspace.ID())
			return "ok", err
		})
		last := agent(t, "expert", script(call("act")), work) // then its model fails
		middle, err := adk.SetSubAgents(ctx, agent(t, "middle", script(call("act"), call(adk.TransferToAgentToolName)), work), []adk.Agent{last})
		require.NoError(t, err)
		toMiddle := call(adk.TransferToAgentToolName)
		toMiddle.ToolCalls[0].Function.Arguments = `{"agent_name":"middle"}`
		first, err := adk.SetSubAgents(ctx, agent(t, "first", script(call("act"), toMiddle), work), []adk.Agent{middle})
		require.NoError(t, err)
		m := mode{kind: kind{isAgent: true}, events: events}
		_, err = m.run(m.context(), &subject{agent: first}, p.hook)
		require.ErrorContains(t, err, "script is at its end")
		require.Equal(t, []string{"ws-1", "ws-1", "ws-1"}, ids)
		p.requireSettled(t, !events, workspaces.Failed)
	}
}

// A parallel node that goes on when its graph has failed reaches nothing any more.
func TestStraggler_M5_L3(t *testing.T) {
	p := newPlace(t)
	ready, goOn, late := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	g := compose.NewWorkflow[string, string]()
	g.AddLambdaNode("fails", act(func(ctx context.Context) (string, error) {
		_, err := acquire(ctx)
		<-ready
		return "", errors.Join(err, errors.New("the act failed"))
	}).node()).AddInput(compose.START)
	g.AddLambdaNode("straggles", act(func(ctx context.Context) (string, error) {
		close(ready)
		<-goOn
		_, err := acquire(ctx)
		late <- err
		return "", err
	}).node()).AddInput(compose.START)
	g.AddLambdaNode("joins", compose.InvokableLambda(func(_ context.Context, in map[string]any) (string, error) { return "", nil })).
		AddInput("fails", compose.ToField("a")).AddInput("straggles", compose.ToField("b"))
	g.End().AddInput("joins")
	_, err := compiled(t, g).graph.Invoke(context.Background(), "go", compose.WithCallbacks(p.hook))
	require.ErrorContains(t, err, "the act failed")
	p.requireSettled(t, false, workspaces.Failed)
	close(goOn)
	require.ErrorIs(t, <-late, workspaces.ErrRunEnded)
	p.requireSettled(t, false, workspaces.Failed)
}

// A panic that Eino does not catch passes through to the caller. From Invoke the run is released before that; from Stream
// the hook is not called, and the run ends with its context.
func TestPanicInBranch_L4_L6(t *testing.T) {
	panicking := func(t *testing.T) *subject {
		g := compose.NewGraph[string, string]()
		require.NoError(t, g.AddLambdaNode("act", act(working).node()))
		require.NoError(t, g.AddEdge(compose.START, "act"))
		require.NoError(t, g.AddBranch("act", compose.NewGraphBranch(func(context.Context, string) (string, error) {
			panic("no way")
		}, map[string]bool{compose.END: true})))
		return compiled(t, g)
	}
	t.Run("invoke", func(t *testing.T) {
		p := newPlace(t)
		s := panicking(t)
		require.PanicsWithValue(t, "no way", func() {
			_, _ = s.graph.Invoke(context.Background(), "go", compose.WithCallbacks(p.hook))
		})
		p.requireSettled(t, false, workspaces.Completed)
	})
	t.Run("stream", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			p := newPlace(t)
			s := panicking(t)
			ctx, cancel := context.WithCancel(context.Background())
			require.Panics(t, func() { _, _ = s.graph.Stream(ctx, "go", compose.WithCallbacks(p.hook)) })
			p.requireKept(t, 1)
			cancel()
			time.Sleep(11 * time.Second)
			p.requireSettled(t, false, workspaces.Cancelled)
		})
	})
}

// The hook installed twice, and a second hook, do nothing more.
func TestInstalledTwice_L1(t *testing.T) {
	p := newPlace(t)
	s := compiled(t, oneNode(t, working))
	_, err := s.graph.Invoke(context.Background(), "go", compose.WithCallbacks(p.hook, p.hook, p.newHook()))
	require.NoError(t, err)
	p.requireSettled(t, false, workspaces.Completed)
}

// A tool that is called for by an agent inside a graph works in the run of the graph.
func TestAgentInGraph_L1(t *testing.T) {
	p := newPlace(t)
	var ids []string
	work := act(func(ctx context.Context) (string, error) {
		workspace, err := acquire(ctx)
		ids = append(ids, workspace.ID())
		return "ok", err
	})
	g := compose.NewGraph[string, string]()
	require.NoError(t, g.AddLambdaNode("first", work.node()))
	require.NoError(t, g.AddLambdaNode("agent", act(func(ctx context.Context) (string, error) {
		runner := adk.NewRunner(ctx, adk.RunnerConfig{Agent: agent(t, "inner", script(call("act"), answer()), tool.BaseTool(work))})
		_, err := consume(lifecycle.Events(ctx, runner.Query(ctx, "go")))
		if len(p.settled()) > 0 {
			err = errors.Join(err, errors.New("the agent settled the graph's run"))
		}
		return "ok", err
	}).node()))
	require.NoError(t, g.AddEdge(compose.START, "first"))
	require.NoError(t, g.AddEdge("first", "agent"))
	require.NoError(t, g.AddEdge("agent", compose.END))
	_, err := compiled(t, g).graph.Invoke(context.Background(), "go", compose.WithCallbacks(p.hook))
	require.NoError(t, err)
	require.Equal(t, []string{"ws-1", "ws-1"}, ids)
	p.requireSettled(t, false, workspaces.Completed)
}
