package einotrace_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/cloudwego/eino/adk"
	"github.com/cloudwego/eino/callbacks"
	"github.com/cloudwego/eino/components"
	"github.com/cloudwego/eino/compose"
	"github.com/cloudwego/eino/schema"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/carrel-dev/carrel/workspaces"
)

// proves C59, O1, O3: each way a tool ends, in a graph and in an agent.
func TestToolOutcomesC59O1O3(t *testing.T) {
	opError := func(err error) error { return &workspaces.OpError{Op: "exec", Workspace: "ws1", Err: err} }
	type testCase struct {
		run       func(r *recording, cancel context.CancelFunc) func(context.Context, string) (string, error)
		toolError string // error.type of the tool's span
		execError string
		fails     bool // the run
	}
	answers := func(result workspaces.Result, err error) func(*recording, context.CancelFunc) func(context.Context, string) (string, error) {
		return func(r *recording, _ context.CancelFunc) func(context.Context, string) (string, error) {
			return func(ctx context.Context, _ string) (string, error) {
				r.carrel(ctx, result, err)
				workspaces.ReportToolError(ctx, err)
				return "text-SECRET", nil
			}
		}
	}
	for name, c := range map[string]testCase{
		"success":       {run: answers(workspaces.Result{}, nil)},
		"non-zero exit": {run: answers(workspaces.Result{ExitCode: 2}, nil)},
		"timeout":       {run: answers(workspaces.Result{TimedOut: true, ExitCode: 124}, nil), execError: "timeout"},
		"gone":          {run: answers(workspaces.Result{}, opError(workspaces.ErrGone)), toolError: "gone", execError: "gone"},
		"provider panic": {
			run:       answers(workspaces.Result{}, opError(errors.New("provider panicked: SECRET"))),
			toolError: "_OTHER", execError: "_OTHER",
		},
		"validation error": {run: func(*recording, context.CancelFunc) func(context.Context, string) (string, error) {
			return func(ctx context.Context, _ string) (string, error) {
				workspaces.ReportToolError(ctx, workspaces.ErrInvalidInput)
				return "path-SECRET is outside", nil
			}
		}, toolError: "invalid_input"},
		"cancelled": {run: func(r *recording, cancel context.CancelFunc) func(context.Context, string) (string, error) {
			return func(ctx context.Context, _ string) (string, error) {
				cancel()
				r.carrel(ctx, workspaces.Result{}, opError(context.Canceled))
				return "", context.Canceled
			}
		}, toolError: "cancelled", execError: "cancelled", fails: true},
		"panic": {run: func(*recording, context.CancelFunc) func(context.Context, string) (string, error) {
			return func(context.Context, string) (string, error) { panic("SECRET") }
		}, toolError: "abandoned", fails: true},
		"error": {run: func(*recording, context.CancelFunc) func(context.Context, string) (string, error) {
			return func(context.Context, string) (string, error) { return "", errors.New("SECRET") }
		}, toolError: "_OTHER", fails: true},
	} {
		for _, kind := range []string{"graph", "graph stream", "agent", "agent stream", "agent parallel"} {
			t.Run(kind+"/"+name, func(t *testing.T) {
				r := record(t)
				ctx, cancel := context.WithCancel(context.Background())
				defer cancel()
				under := &funcTool{"bash", c.run(r, cancel)}
				other := &funcTool{"other", func(context.Context, string) (string, error) { return "ok", nil }}
				requests := []schema.ToolCall{call("c1", "bash", "{}")}
				if kind == "agent parallel" {
					requests = []schema.ToolCall{call("c2", "other", "{}"), call("c1", "bash", "{}")}
				}
				m := script(calls(requests...), answer("done"))

				var err error
				streaming := strings.HasSuffix(kind, "stream")
				if strings.HasPrefix(kind, "graph") {
					_, err = invoke(ctx, loop(t, m, under, other), streaming, "go", compose.WithCallbacks(r.handler))
				} else {
					_, err = query(ctx, agent(t, "fixer", m, under, other), streaming, adk.WithCallbacks(r.handler))
				}
				require.Equal(t, c.fails, err != nil, "%v", err)

				spans := r.settle(t)
				toolSpan := r.find(t, "execute_tool bash")
				assert.Equal(t, c.toolError, value(toolSpan, "error.type"))
				assert.Equal(t, c.toolError != "", toolSpan.Status().Code == codes.Error)
				if c.execError != "" || strings.Contains(outline(spans), "carrel.exec") {
					exec := r.find(t, "carrel.exec")
					assert.Equal(t, c.execError, value(exec, "error.type"))
					assert.Equal(t, toolSpan.SpanContext().SpanID(), exec.Parent().SpanID())
					assert.Equal(t, toolSpan.SpanContext().TraceID(), exec.SpanContext().TraceID())
				}
				assert.NotContains(t, render(spans, false), "SECRET")
				for _, span := range spans {
					if !span.Parent().IsValid() {
						assert.Equal(t, c.fails, span.Status().Code == codes.Error, "%s fails when the run does", span.Name())
					}
				}
			})
		}
	}
}

// proves O3: a model that fails fails its callers; no message of it is recorded.
func TestModelErrorO3(t *testing.T) {
	for _, streaming := range []bool{false, true} {
		r := record(t)
		_, err := query(context.Background(), agent(t, "fixer", script()), streaming, adk.WithCallbacks(r.handler))
		require.Error(t, err)
		require.NotContains(t, render(r.settle(t), false), "SECRET")
		for _, span := range r.spans.Ended() {
			require.Equal(t, codes.Error, span.Status().Code, span.Name())
		}
	}
}

// proves C59: callbacks without a partner neither panic nor end the span of the caller.
func TestUnpairedC59(t *testing.T) {
	r := record(t)
	h := r.handler
	stream := func() *schema.StreamReader[callbacks.CallbackOutput] {
		out, writer := schema.Pipe[callbacks.CallbackOutput](1)
		writer.Send("x", nil)
		writer.Close()
		return out
	}
	graph := &callbacks.RunInfo{Name: "g", Component: compose.ComponentOfGraph}
	lost := &callbacks.RunInfo{Name: "t", Component: components.ComponentOfTool}
	var none *adk.AgentCallbackOutput

	above := h.OnStart(context.Background(), graph, nil)
	for _, ctx := range []context.Context{context.Background(), above} {
		for _, info := range []*callbacks.RunInfo{nil, lost, {}} {
			h.OnEnd(ctx, info, "x")
			h.OnEnd(ctx, info, nil)
			h.OnEnd(ctx, info, none)
			h.OnEnd(ctx, info, &adk.AgentCallbackOutput{})
			events, generator := adk.NewAsyncIteratorPair[*adk.AgentEvent]()
			generator.Send(nil)
			generator.Close()
			h.OnEnd(ctx, info, &adk.AgentCallbackOutput{Events: events})
			h.OnError(ctx, info, errors.New("x"))
			h.OnError(ctx, info, nil)
			h.OnEndWithStreamOutput(ctx, info, stream())
			h.OnEndWithStreamOutput(ctx, info, nil)
		}
		h.OnStart(ctx, nil, nil)
		h.OnStartWithStreamInput(ctx, nil, schema.StreamReaderFromArray([]callbacks.CallbackInput{"x"}))
		h.OnStartWithStreamInput(ctx, nil, nil)
	}
	require.Empty(t, r.spans.Ended(), "the graph runs on")

	// What starts and never ends goes with its caller; a second end is none.
	h.OnStart(above, lost, "x")
	h.OnEnd(above, graph, "x")
	h.OnError(above, graph, errors.New("x"))
	h.OnEndWithStreamOutput(above, graph, stream())
	r.settle(t)
	require.Equal(t, "graph g\n  execute_tool t [Error: abandoned]\n", outline(r.spans.Ended()))

	// Nothing starts below what has ended, but for what ends what it starts itself.
	h.OnStart(above, lost, "x")
	require.Len(t, r.spans.Started(), 2)
	late := &callbacks.RunInfo{Name: "late", Component: compose.ComponentOfGraph}
	h.OnEnd(h.OnStart(above, late, "x"), late, "x")
	require.Len(t, r.settle(t), 3)
}

// proves C59: a handler that is installed twice makes one span of a call.
func TestInstalledTwiceC59(t *testing.T) {
	r := record(t)
	run := loop(t, script(calls(call("c1", "bash", "{}")), answer("done")), bash(r))
	_, err := invoke(context.Background(), run, true, "go", compose.WithCallbacks(r.handler, r.handler))
	require.NoError(t, err)
	_, err = query(context.Background(), agent(t, "fixer", script(answer("done"))), true, adk.WithCallbacks(r.handler, r.handler))
	require.NoError(t, err)
	require.Equal(t, `graph loop
  chat (client)
  chat (client)
  execute_tool bash
    carrel.exec
invoke_agent fixer
  chain fixer
    chat (client)
`, outline(r.settle(t)))
}

// proves C59: another handler's panic leaves no span open.
func TestOtherHandlerPanicsC59(t *testing.T) {
	for name, other := range map[string]callbacks.Handler{
		"start": callbacks.NewHandlerBuilder().OnStartFn(func(ctx context.Context, info *callbacks.RunInfo, _ callbacks.CallbackInput) context.Context {
			if info.Component == components.ComponentOfTool {
				panic("boom")
			}
			return ctx
		}).Build(),
		"end": callbacks.NewHandlerBuilder().OnEndFn(func(ctx context.Context, info *callbacks.RunInfo, _ callbacks.CallbackOutput) context.Context {
			if info.Component == components.ComponentOfTool {
				panic("boom")
			}
			return ctx
		}).Build(),
	} {
		for order, handlers := range map[string][]callbacks.Handler{"first": {other, nil}, "last": {nil, other}} {
			t.Run(name+" "+order, func(t *testing.T) {
				r := record(t)
				for i := range handlers {
					if handlers[i] == nil {
						handlers[i] = r.handler
					}
				}
				run := loop(t, script(calls(call("c1", "bash", "{}")), answer("done")), bash(r))
				_, err := run.Invoke(context.Background(), user("go"), compose.WithCallbacks(handlers...))
				require.Error(t, err)
				r.settle(t)
			})
		}
	}
}

// proves C59: one handler serves runs at the same time, none sees another's spans.
func TestConcurrentRunsC59(t *testing.T) {
	r := record(t)
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			a := agent(t, "fixer", script(calls(call("c1", "bash", "{}"), call("c2", "bash", "{}")), answer("done")), bash(r))
			_, err := query(context.Background(), a, true, adk.WithCallbacks(r.handler))
			assert.NoError(t, err)
		})
	}
	group.Wait()
	r.settle(t)
	traces := map[trace.TraceID]int{}
	for _, span := range r.spans.Ended() {
		traces[span.SpanContext().TraceID()]++
	}
	require.Len(t, traces, 8)
	for _, spans := range traces {
		require.Equal(t, len(r.spans.Ended())/8, spans)
	}
}
