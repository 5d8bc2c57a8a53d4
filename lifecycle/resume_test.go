package lifecycle_test

import (
	"context"
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

// asking takes the run's workspace, interrupts once, and completes when it is resumed.
func asking(m mode, ids *[]string) act {
	return func(ctx context.Context) (string, error) {
		workspace, err := acquire(ctx)
		if err != nil {
			return "", err
		}
		*ids = append(*ids, workspace.ID())
		switch {
		case len(*ids) > 1:
			return "ok", nil
		case m.isAgent:
			return "", tool.StatefulInterrupt(ctx, "may I?", "asked")
		default:
			return "", compose.StatefulInterrupt(ctx, "may I?", "asked")
		}
	}
}

// An interrupted run keeps its workspace and goes on in it when it is resumed, by another hook and under another context.
// A graph is named, an agent's session remembers.
func TestInterrupted_L1_L3(t *testing.T) {
	each(t, func(t *testing.T, m mode) {
		p := newPlace(t)
		var ids []string
		s := m.make(t, asking(m, &ids))
		resuming := func() context.Context {
			if m.isAgent {
				return m.context()
			}
			return lifecycle.WithRunID(context.Background(), "the run")
		}
		interrupted, err := m.run(resuming(), s, p.hook)
		require.True(t, interrupted, err)
		require.NoError(t, p.hook.Drain(t.Context()))
		p.requireKept(t, 1)

		p.hook = p.newHook()
		interrupted, err = m.resume(resuming(), s, p.hook)
		require.NoError(t, err)
		require.False(t, interrupted)
		require.Len(t, ids, 2)
		require.Equal(t, ids[0], ids[1])
		p.requireSettled(t, m.background(), workspaces.Completed)
	})
}

// The commands of an interrupted run are stopped, its workspace is not.
func TestInterruptStopsCommands_L3(t *testing.T) {
	each(t, func(t *testing.T, m mode) {
		p := newPlace(t)
		running, late := make(chan struct{}), make(chan error, 1)
		s := m.make(t, func(ctx context.Context) (string, error) {
			go func() { late <- occupy(context.WithoutCancel(ctx), running) }()
			<-running
			if m.isAgent {
				return "", tool.Interrupt(ctx, "may I?")
			}
			return "", compose.Interrupt(ctx, "may I?")
		})
		interrupted, err := m.run(m.context(), s, p.hook)
		require.True(t, interrupted, err)
		require.ErrorIs(t, <-late, workspaces.ErrRunEnded)
		require.NoError(t, p.hook.Drain(t.Context()))
		p.requireKept(t, 1)
		_, _, stopped := p.provider.counts()
		require.Equal(t, 1, stopped)
	})
}

// A resume at once, while the interrupted execution is still being seen to, ends the run all the same.
func TestResumedAtOnce_L1_L3(t *testing.T) {
	eachAgent(t, func(t *testing.T, m mode) {
		for range 2 {
			p := newPlace(t)
			var ids []string
			s := m.make(t, asking(m, &ids))
			ctx := m.context()
			interrupted, err := m.run(ctx, s, p.hook)
			require.True(t, interrupted, err)
			_, err = m.resume(ctx, s, p.hook)
			require.NoError(t, err)
			p.requireSettled(t, m.background(), workspaces.Completed)
		}
	})
}

// lateAgent interrupts, and takes a while to end after that. It completes when it is resumed.
type lateAgent struct{ ids *[]string }

func (lateAgent) Name(context.Context) string        { return "late" }
func (lateAgent) Description(context.Context) string { return "ends late" }

func (a lateAgent) Run(ctx context.Context, _ *adk.AgentInput, _ ...adk.AgentRunOption) *adk.AsyncIterator[*adk.AgentEvent] {
	events, generator := adk.NewAsyncIteratorPair[*adk.AgentEvent]()
	go func() {
		defer generator.Close()
		if workspace, err := acquire(ctx); err == nil {
			*a.ids = append(*a.ids, workspace.ID())
		}
		generator.Send(adk.StatefulInterrupt(ctx, "may I?", "asked"))
		time.Sleep(500 * time.Millisecond)
	}()
	return events
}

func (a lateAgent) Resume(ctx context.Context, _ *adk.ResumeInfo, _ ...adk.AgentRunOption) *adk.AsyncIterator[*adk.AgentEvent] {
	events, generator := adk.NewAsyncIteratorPair[*adk.AgentEvent]()
	defer generator.Close()
	if workspace, err := acquire(ctx); err == nil {
		*a.ids = append(*a.ids, workspace.ID())
	}
	return events
}

// An interrupted execution that ends after its resume has does not keep what that has settled.
func TestResumedBeforeItsEnd_L1(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlace(t)
		var ids []string
		ctx := lifecycle.WithRunID(context.Background(), "the run")
		runner := adk.NewRunner(ctx, adk.RunnerConfig{Agent: lateAgent{&ids}, CheckPointStore: &checkpoints{}})
		events := runner.Query(ctx, "go", adk.WithCallbacks(p.hook), adk.WithCheckPointID("cp"))
		event, ok := events.Next()
		require.True(t, ok)
		require.NotNil(t, event.Action.Interrupted)
		resumed, err := runner.Resume(ctx, "cp", adk.WithCallbacks(p.hook))
		require.NoError(t, err)
		_, err = consume(resumed)
		require.NoError(t, err)
		_, err = consume(events)
		require.NoError(t, err)
		require.NoError(t, p.hook.Drain(t.Context()))
		require.Equal(t, []string{"ws-1", "ws-1"}, ids)
		p.requireSettled(t, false, workspaces.Completed)
	})
}

// A run that is interrupted and cancelled when it is resumed loses the workspace that the interrupt kept.
func TestResumedAndCancelled_L4(t *testing.T) {
	p := newPlace(t)
	running, calls := make(chan struct{}), 0
	m := mode{kind: kind{isAgent: true}, events: true}
	s := &subject{agent: worker(t, "worker", func(ctx context.Context) (string, error) {
		if calls++; calls > 1 {
			return "", occupy(ctx, running)
		}
		if _, err := acquire(ctx); err != nil {
			return "", err
		}
		return "", tool.Interrupt(ctx, "may I?")
	})}
	ctx := m.context()
	interrupted, err := m.run(ctx, s, p.hook)
	require.True(t, interrupted, err)
	p.requireKept(t, 1)
	option, cancel := adk.WithCancel()
	go func() {
		<-running
		cancel()
	}()
	_, err = m.resume(ctx, s, p.hook, option)
	var cancelled *adk.CancelError
	require.ErrorAs(t, err, &cancelled)
	p.requireSettled(t, false, workspaces.Cancelled)
}

// Where the caller chose the id, nothing is written into the session: Eino would take the instructions for templates.
func TestChosenIDLeavesSessionAlone_L1(t *testing.T) {
	braces := func(name string, m *scriptedModel, tools ...tool.BaseTool) adk.Agent {
		a, err := adk.NewChatModelAgent(context.Background(), &adk.ChatModelAgentConfig{
			Name: name, Description: "an agent", Instruction: `answer like {"this": 1}`, Model: m,
			ToolsConfig: adk.ToolsConfig{ToolsNodeConfig: compose.ToolsNodeConfig{Tools: tools}},
		})
		require.NoError(t, err)
		return a
	}
	for _, id := range []string{"chosen", ""} {
		p := newPlace(t)
		var ids []string
		m := mode{kind: kind{isAgent: true}, events: true}
		expert := braces("expert", script(call("act"), answer()), act(func(ctx context.Context) (string, error) {
			workspace, err := acquire(ctx)
			ids = append(ids, workspace.ID())
			return "ok", err
		}))
		first, err := adk.SetSubAgents(context.Background(), braces("first", script(call(adk.TransferToAgentToolName))), []adk.Agent{expert})
		require.NoError(t, err)
		_, err = m.run(lifecycle.WithRunID(context.Background(), id), &subject{agent: first}, p.hook)
		require.NoError(t, err)
		require.Len(t, ids, 1)
		p.requireSettled(t, false, workspaces.Completed)
	}

	p := newPlace(t)
	var ids []string
	m := mode{kind: kind{isAgent: true}, events: true}
	inner := adk.NewAgentTool(context.Background(), braces("inner", script(answer())))
	s := &subject{agent: braces("outer", script(call("act"), call("inner"), answer()), asking(m, &ids), inner)}
	interrupted, err := m.run(lifecycle.WithRunID(context.Background(), "chosen"), s, p.hook)
	require.True(t, interrupted, err)
	_, err = m.resume(lifecycle.WithRunID(context.Background(), "chosen"), s, p.hook)
	require.NoError(t, err)
	require.Equal(t, []string{"ws-1", "ws-1"}, ids)
	p.requireSettled(t, false, workspaces.Completed)
}

// The clock of a workspace runs while its run waits: a human answer that comes too late finds it expired.
func TestExpiresWhileInterrupted_L8(t *testing.T) {
	p := newPlace(t)
	late := false
	p.provider.now = func() time.Time {
		if late {
			return time.Now().Add(2 * time.Hour)
		}
		return time.Now()
	}
	var ids []string
	var lost error
	m := mode{kind: kind{isAgent: true}, events: true}
	ask := asking(m, &ids)
	s := &subject{agent: worker(t, "worker", func(ctx context.Context) (string, error) {
		if late {
			_, lost = workspaces.RunFromContext(ctx).Get(ctx, ids[0])
		}
		return ask(ctx)
	})}
	ctx := m.context()
	interrupted, err := m.run(ctx, s, p.hook)
	require.True(t, interrupted, err)
	late = true
	p.requireKept(t, 1)
	_, err = m.resume(ctx, s, p.hook)
	require.NoError(t, err)
	require.ErrorIs(t, lost, workspaces.ErrExpired)
	require.Equal(t, []string{"ws-1", "ws-2"}, ids)
}
