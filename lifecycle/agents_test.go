package lifecycle_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/cloudwego/eino/adk"
	"github.com/cloudwego/eino/components/model"
	"github.com/cloudwego/eino/components/tool"
	"github.com/cloudwego/eino/compose"
	"github.com/cloudwego/eino/schema"
	"github.com/stretchr/testify/require"

	"github.com/carrel-dev/carrel/lifecycle"
	"github.com/carrel-dev/carrel/workspaces"
)

// breakingModel calls act, and then its streams break so many times before one is whole.
type breakingModel struct {
	*scriptedModel
	breaks int
	called bool
}

func (m *breakingModel) Stream(ctx context.Context, input []*schema.Message, options ...model.Option) (*schema.StreamReader[*schema.Message], error) {
	if !m.called {
		m.called = true
		return m.scriptedModel.Stream(ctx, input, options...)
	}
	if m.breaks == 0 {
		return m.scriptedModel.Stream(ctx, input, options...)
	}
	m.breaks--
	reader, writer := schema.Pipe[*schema.Message](2)
	writer.Send(schema.AssistantMessage("half a sen", nil), nil)
	writer.Send(nil, errors.New("the line is dead"))
	writer.Close()
	return reader, nil
}

// A model's stream that breaks fails the run, unless the model is asked again.
func TestBrokenStream_L3_L5(t *testing.T) {
	for name, test := range map[string]struct {
		retries, breaks int
		want            workspaces.Outcome
	}{
		"once":                  {0, 1, workspaces.Failed},
		"once, asked again":     {1, 1, workspaces.Completed},
		"twice, asked again":    {1, 2, workspaces.Failed},
		"never, could be asked": {1, 0, workspaces.Completed},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlace(t)
			config := &adk.ChatModelAgentConfig{
				Name: "worker", Description: "works", Model: &breakingModel{scriptedModel: script(call("act"), answer()), breaks: test.breaks},
				ToolsConfig: adk.ToolsConfig{ToolsNodeConfig: compose.ToolsNodeConfig{Tools: toolsOf(working)}},
			}
			if test.retries > 0 {
				config.ModelRetryConfig = &adk.ModelRetryConfig{
					MaxRetries:  test.retries,
					BackoffFunc: func(context.Context, int) time.Duration { return time.Microsecond },
				}
			}
			a, err := adk.NewChatModelAgent(context.Background(), config)
			require.NoError(t, err)
			ctx := lifecycle.WithRunID(context.Background(), "")
			runner := adk.NewRunner(ctx, adk.RunnerConfig{Agent: a, EnableStreaming: true})
			_, _ = consume(lifecycle.Events(ctx, runner.Query(ctx, "go", adk.WithCallbacks(p.hook))))
			p.requireSettled(t, false, test.want)
		})
	}
}

// forgiving makes the errors of a tool results.
type forgiving struct{ tool.InvokableTool }

func (f forgiving) InvokableRun(ctx context.Context, arguments string, options ...tool.Option) (string, error) {
	result, err := f.InvokableTool.InvokableRun(ctx, arguments, options...)
	if err != nil {
		return "it failed: " + err.Error(), nil //nolint:nilerr // what it is for
	}
	return result, nil
}

// The broken stream of an agent inside, whose events are shown, is not the end of the agent around it.
func TestBrokenStreamInside_L1_L3(t *testing.T) {
	p := newPlace(t)
	ctx := lifecycle.WithRunID(context.Background(), "")
	broken := &breakingModel{scriptedModel: script(call("act")), breaks: 1}
	inner := adk.NewAgentTool(ctx, agent(t, "inner", broken, act(working))).(tool.InvokableTool)
	a, err := adk.NewChatModelAgent(ctx, &adk.ChatModelAgentConfig{
		Name: "outer", Description: "works", Model: script(call("inner"), answer()),
		ToolsConfig: adk.ToolsConfig{EmitInternalEvents: true, ToolsNodeConfig: compose.ToolsNodeConfig{Tools: []tool.BaseTool{forgiving{inner}}}},
	})
	require.NoError(t, err)
	runner := adk.NewRunner(ctx, adk.RunnerConfig{Agent: a, EnableStreaming: true})
	_, err = consume(lifecycle.Events(ctx, runner.Query(ctx, "go", adk.WithCallbacks(p.hook))))
	require.ErrorContains(t, err, "the line is dead", "the reader sees the event of the agent inside")
	p.requireSettled(t, false, workspaces.Completed)
}

// agenticModel takes the run's workspace itself, as a model that runs its tools would.
type agenticModel struct{ err error }

func (m agenticModel) Generate(ctx context.Context, _ []*schema.AgenticMessage, _ ...model.Option) (*schema.AgenticMessage, error) {
	if _, err := acquire(ctx); err != nil {
		return nil, err
	}
	return schema.UserAgenticMessage("done"), m.err
}

func (m agenticModel) Stream(ctx context.Context, input []*schema.AgenticMessage, options ...model.Option) (*schema.StreamReader[*schema.AgenticMessage], error) {
	message, err := m.Generate(ctx, input, options...)
	if err != nil {
		return nil, err
	}
	return schema.StreamReaderFromArray([]*schema.AgenticMessage{message}), nil
}

// Agents of Eino's other message type are agents too.
func TestAgenticAgent_L1_L3(t *testing.T) {
	for _, stream := range []bool{false, true} {
		for want, failure := range map[workspaces.Outcome]error{workspaces.Completed: nil, workspaces.Failed: errors.New("no answer")} {
			p := newPlace(t)
			a, err := adk.NewTypedChatModelAgent(context.Background(), &adk.TypedChatModelAgentConfig[*schema.AgenticMessage]{
				Name: "worker", Description: "works", Model: agenticModel{failure},
			})
			require.NoError(t, err)
			ctx := lifecycle.WithRunID(context.Background(), "")
			runner := adk.NewTypedRunner(adk.TypedRunnerConfig[*schema.AgenticMessage]{Agent: a, EnableStreaming: stream})
			events := lifecycle.Events(ctx, runner.Query(ctx, "go", adk.WithCallbacks(p.hook)))
			for {
				event, ok := events.Next()
				if !ok {
					break
				}
				require.True(t, event.Err == nil || errors.Is(event.Err, failure), event.Err)
			}
			p.requireSettled(t, false, want)
		}
	}
}

// In a turn loop one context names the run of all turns: a turn that is pre-empted keeps the workspace for the next.
func TestTurnLoop_L4(t *testing.T) {
	p := newPlace(t)
	type (
		loop   = adk.TurnLoop[string, *schema.Message]
		turn   = adk.TurnContext[string, *schema.Message]
		result = adk.GenInputResult[string, *schema.Message]
	)
	running, ids := make(chan struct{}), make(chan string, 2)
	settled := make(chan []workspaces.Outcome, 2)
	l := adk.NewTurnLoop(adk.TurnLoopConfig[string, *schema.Message]{
		GenInput: func(_ context.Context, _ *loop, items []string) (*result, error) {
			return &result{
				Input: &adk.AgentInput{Messages: []*schema.Message{schema.UserMessage(items[0])}}, Consumed: items[:1], Remaining: items[1:],
				RunOpts: []adk.AgentRunOption{adk.WithCallbacks(p.hook)},
			}, nil
		},
		PrepareAgent: func(_ context.Context, _ *loop, items []string) (adk.Agent, error) {
			return worker(t, "worker", func(ctx context.Context) (string, error) {
				workspace, err := acquire(ctx)
				if err != nil {
					return "", err
				}
				ids <- workspace.ID()
				if items[0] == "first" {
					close(running)
					_, err = workspace.Exec(ctx, workspaces.Command{Args: []string{"wait"}})
				}
				return "ok", err
			}), nil
		},
		OnAgentEvents: func(ctx context.Context, _ *turn, events *adk.AsyncIterator[*adk.AgentEvent]) error {
			_, err := consume(lifecycle.Events(ctx, events, lifecycle.KeepOnCancel()))
			settled <- p.settled()
			var cancelled *adk.CancelError
			if errors.As(err, &cancelled) {
				return nil
			}
			return err
		},
	})
	l.Run(lifecycle.WithRunID(context.Background(), "the loop"))
	l.Push("first")
	<-running
	l.Push("second", adk.WithPreemptTimeout[string, *schema.Message](adk.AnySafePoint, time.Millisecond))
	require.Empty(t, <-settled)
	require.Equal(t, []workspaces.Outcome{workspaces.Completed}, <-settled)
	l.Stop()
	require.NoError(t, l.Wait().ExitReason)
	require.Equal(t, <-ids, <-ids)
	p.requireSettled(t, false, workspaces.Completed)
}
