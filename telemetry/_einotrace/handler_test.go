package einotrace_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"github.com/cloudwego/eino/adk"
	"github.com/cloudwego/eino/callbacks"
	"github.com/cloudwego/eino/components"
	"github.com/cloudwego/eino/components/model"
	"github.com/cloudwego/eino/compose"
	"github.com/cloudwego/eino/schema"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/carrel-dev/carrel/telemetry/einotrace"
	"github.com/carrel-dev/carrel/workspaces"
)

func bash(r *recording) *funcTool {
	return &funcTool{"bash", func(ctx context.Context, _ string) (string, error) {
		r.carrel(ctx, workspaces.Result{ExitCode: 1}, nil)
		return "result-SECRET", nil
	}}
}

// proves O1: in a graph, carrel's spans hang below the tool, the tool below the graph.
func TestGraphO1(t *testing.T) {
	for name, streaming := range map[string]bool{"graph.golden": false, "graph_stream.golden": true} {
		t.Run(name, func(t *testing.T) {
			r := record(t, einotrace.WithNodes(true))
			run := loop(t, script(calls(call("c1", "bash", `{"command":"args-SECRET"}`)), answer("done")), bash(r))
			if streaming {
				stream, err := run.Stream(context.Background(), user("go"), compose.WithCallbacks(r.handler))
				require.NoError(t, err)
				message, err := schema.ConcatMessageStream(stream)
				require.NoError(t, err)
				require.Equal(t, "done", message.Content)
			} else {
				_, err := run.Invoke(context.Background(), user("go"), compose.WithCallbacks(r.handler))
				require.NoError(t, err)
			}
			golden(t, name, render(r.settle(t), false))
		})
	}
}

// proves O1: only agents, graphs, models and tools without WithNodes.
func TestDefaultComponentsO1(t *testing.T) {
	r := record(t)
	run := loop(t, script(calls(call("c1", "bash", "{}")), answer("done")), bash(r))
	_, err := run.Invoke(context.Background(), user("go"), compose.WithCallbacks(r.handler))
	require.NoError(t, err)
	require.Equal(t, `graph loop
  chat (client)
  chat (client)
  execute_tool bash
    carrel.exec
`, outline(r.settle(t)))
}

// proves O1
func TestChainO1(t *testing.T) {
	r := record(t, einotrace.WithNodes(true))
	chain := compose.NewChain[string, string]()
	chain.AppendLambda(compose.InvokableLambda(func(ctx context.Context, in string) (string, error) {
		r.carrel(ctx, workspaces.Result{}, nil)
		return in + "!", nil
	}), compose.WithNodeName("shout"))
	chain.AppendLambda(compose.TransformableLambda(func(_ context.Context, in *schema.StreamReader[string]) (*schema.StreamReader[string], error) {
		return schema.StreamReaderWithConvert(in, func(s string) (string, error) { return s + "?", nil }), nil
	}), compose.WithNodeName("ask"))
	run, err := chain.Compile(context.Background(), compose.WithGraphName("talk"))
	require.NoError(t, err)

	out, err := run.Invoke(context.Background(), "hi", compose.WithCallbacks(r.handler))
	require.NoError(t, err)
	require.Equal(t, "hi!?", out)
	in, writer := schema.Pipe[string](1)
	writer.Send("ho", nil)
	writer.Close()
	stream, err := run.Transform(context.Background(), in, compose.WithCallbacks(r.handler))
	require.NoError(t, err)
	_, err = stream.Recv()
	require.NoError(t, err)
	stream.Close()
	golden(t, "chain.golden", render(r.settle(t), false))
}

// proves O1: in an ADK agent, with tools that Eino runs in parallel.
func TestAgentO1(t *testing.T) {
	for name, streaming := range map[string]bool{"agent.golden": false, "agent_stream.golden": true} {
		t.Run(name, func(t *testing.T) {
			r := record(t)
			slow := &streamTool{"tail", func(ctx context.Context) *schema.StreamReader[string] {
				out, writer := schema.Pipe[string](1)
				go func() {
					defer writer.Close()
					writer.Send("one", nil)
					r.carrel(ctx, workspaces.Result{TimedOut: true}, nil)
					workspaces.ReportToolError(ctx, workspaces.ErrGone)
					writer.Send("two", nil)
				}()
				return out
			}}
			a := agent(t, "fixer", script(calls(call("c1", "bash", "{}"), call("c2", "tail", "{}")), answer("done")), bash(r), slow)
			_, err := query(context.Background(), a, streaming, adk.WithCallbacks(r.handler))
			require.NoError(t, err)
			golden(t, name, render(r.settle(t), true))
		})
	}
}

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
				switch {
				case strings.HasPrefix(kind, "graph"):
					run := loop(t, m, under, other)
					if kind == "graph" {
						_, err = run.Invoke(ctx, user("go"), compose.WithCallbacks(r.handler))
					} else {
						var stream *schema.StreamReader[*schema.Message]
						if stream, err = run.Stream(ctx, user("go"), compose.WithCallbacks(r.handler)); err == nil {
							_, err = schema.ConcatMessageStream(stream)
						}
					}
				default:
					_, err = query(ctx, agent(t, "fixer", m, under, other), kind == "agent stream", adk.WithCallbacks(r.handler))
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

// proves C59: a stream that breaks off fails its span and those it comes through; other readers are not held up.
func TestBrokenStreamC59(t *testing.T) {
	r := record(t)
	chain := compose.NewChain[string, string]()
	started, goOn := make(chan struct{}), make(chan struct{})
	chain.AppendLambda(compose.StreamableLambda(func(context.Context, string) (*schema.StreamReader[string], error) {
		out, writer := schema.Pipe[string](0)
		go func() {
			defer writer.Close()
			writer.Send("one", nil)
			close(started)
			<-goOn
			writer.Send("", errors.New("broken SECRET"))
		}()
		return out, nil
	}))
	run, err := chain.Compile(context.Background(), compose.WithGraphName("talk"))
	require.NoError(t, err)
	stream, err := run.Stream(context.Background(), "hi", compose.WithCallbacks(r.handler))
	require.NoError(t, err)
	<-started
	require.Empty(t, r.spans.Ended(), "the producer has not ended")
	close(goOn)
	_, err = stream.Recv()
	require.NoError(t, err)
	_, err = stream.Recv()
	require.Error(t, err)
	stream.Close()
	r.settle(t)
	require.Equal(t, "_OTHER", value(r.find(t, "chain talk"), "error.type"))
	require.NotContains(t, render(r.spans.Ended(), false), "SECRET")
}

// proves C59: a reader that closes early neither keeps the span open nor the producer waiting.
func TestEarlyCloseC59(t *testing.T) {
	r := record(t)
	run := loop(t, script(answer("a long answer")))
	stream, err := run.Stream(context.Background(), user("go"), compose.WithCallbacks(r.handler))
	require.NoError(t, err)
	stream.Close()
	r.settle(t)
}

// proves C59: what panics in a stream of somebody else does not end the program.
func TestPanicInStreamC59(t *testing.T) {
	r := record(t)
	info := &callbacks.RunInfo{Name: "t", Component: components.ComponentOfTool}
	ctx := r.handler.OnStart(context.Background(), info, "in")
	r.handler.OnEndWithStreamOutput(ctx, info, schema.StreamReaderWithConvert(schema.StreamReaderFromArray([]string{"a"}),
		func(string) (callbacks.CallbackOutput, error) { panic("SECRET") }))
	r.settle(t)
	require.Equal(t, "_OTHER", value(r.find(t, "execute_tool t"), "error.type"))
	require.NotContains(t, render(r.spans.Ended(), false), "SECRET")
}

// proves O1: Eino reports the end of an agent at once; its span ends with the agent.
func TestAgentEndO1(t *testing.T) {
	r := record(t)
	running, goOn := make(chan struct{}), make(chan struct{})
	wait := &funcTool{"wait", func(context.Context, string) (string, error) {
		close(running)
		<-goOn
		return "ok", nil
	}}
	runner := adk.NewRunner(context.Background(), adk.RunnerConfig{Agent: agent(t, "fixer", script(calls(call("c", "wait", "{}")), answer("done")), wait)})
	events := runner.Query(context.Background(), "go", adk.WithCallbacks(r.handler))
	<-running
	for _, span := range r.spans.Ended() {
		require.NotEqual(t, "invoke_agent fixer", span.Name())
	}
	close(goOn)
	_, err := consume(events)
	require.NoError(t, err)
	r.settle(t)
	end := r.find(t, "invoke_agent fixer").EndTime()
	for _, span := range r.spans.Ended() {
		require.False(t, span.EndTime().After(end), span.Name())
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
	stream, err := run.Stream(context.Background(), user("go"), compose.WithCallbacks(r.handler, r.handler))
	require.NoError(t, err)
	_, err = schema.ConcatMessageStream(stream)
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

// proves O1: model name, provider and token usage where a model tells them; the largest of what chunks say.
func TestModelO1(t *testing.T) {
	r := record(t)
	run := loop(t, knownModel{script(answer("done"))}, bash(r))
	_, err := run.Invoke(context.Background(), user("go"), compose.WithCallbacks(r.handler))
	require.NoError(t, err)

	streamed := loop(t, script(answer("done")), bash(r))
	stream, err := streamed.Stream(context.Background(), user("go"), compose.WithCallbacks(r.handler))
	require.NoError(t, err)
	_, err = schema.ConcatMessageStream(stream)
	require.NoError(t, err)
	golden(t, "model.golden", render(r.settle(t), false))
}

// proves O1: agentic models and agents have spans as well.
func TestAgenticO1(t *testing.T) {
	r := record(t)
	h := r.handler
	outer := &callbacks.RunInfo{Name: "a", Component: adk.ComponentOfAgenticAgent}
	inner := &callbacks.RunInfo{Name: "m", Type: "OpenAI", Component: components.ComponentOfAgenticModel}
	ctx := h.OnStart(context.Background(), outer, &adk.TypedAgentCallbackInput[*schema.AgenticMessage]{})
	events, generator := adk.NewAsyncIteratorPair[*adk.TypedAgentEvent[*schema.AgenticMessage]]()
	h.OnEnd(ctx, outer, &adk.TypedAgentCallbackOutput[*schema.AgenticMessage]{Events: events})
	below := h.OnStart(ctx, inner, &model.AgenticCallbackInput{Config: &model.AgenticConfig{Model: "gpt-y"}})
	h.OnEnd(below, inner, &model.AgenticCallbackOutput{Message: &schema.AgenticMessage{
		ResponseMeta: &schema.AgenticResponseMeta{TokenUsage: &schema.TokenUsage{PromptTokens: 7, CompletionTokens: 2}},
	}})
	require.Len(t, r.spans.Ended(), 1)
	generator.Close()
	golden(t, "agentic.golden", render(r.settle(t), false))
}

// proves O3: content is recorded when it is switched on, bounded and valid.
func TestContentO3(t *testing.T) {
	long := strings.Repeat("中\xff", 50_000)
	big := &funcTool{"big", func(ctx context.Context, _ string) (string, error) {
		workspaces.ReportToolError(ctx, errors.New(long))
		return long, nil
	}}
	drive := func(r *recording) {
		run := loop(t, script(calls(call("c1", "bash", `{"command":"args-SECRET"}`)), calls(call("c2", "big", long)), answer("answer-SECRET")), bash(r), big)
		stream, err := run.Stream(context.Background(), user("question-SECRET"), compose.WithCallbacks(r.handler))
		require.NoError(t, err)
		_, err = schema.ConcatMessageStream(stream)
		require.NoError(t, err)
		r.settle(t)
	}
	off, on := record(t), record(t, einotrace.WithContent(true))
	drive(off)
	drive(on)
	require.NotContains(t, render(off.spans.Ended(), false), "SECRET")
	text := render(on.spans.Ended(), false)
	for _, part := range []string{"args-SECRET", "result-SECRET", "question-SECRET", "answer-SECRET"} {
		require.Contains(t, text, part)
	}
	for _, span := range on.spans.Ended() {
		require.True(t, utf8.ValidString(span.Status().Description))
		require.LessOrEqual(t, len(span.Status().Description), 256)
		require.Empty(t, span.Events())
		for _, attr := range span.Attributes() {
			require.True(t, utf8.ValidString(attr.Value.Emit()), "%s", attr.Key)
			require.Less(t, len(attr.Value.Emit()), 30_000, "%s", attr.Key)
		}
	}
}

// proves O3: names that others choose are bounded and valid too.
func TestBoundedO3(t *testing.T) {
	r := record(t, einotrace.WithNodes(true))
	bad := strings.Repeat("a\xff中", 20_000)
	for _, component := range []components.Component{
		adk.ComponentOfAgent, compose.ComponentOfGraph, compose.ComponentOfLambda, components.ComponentOfChatModel, components.ComponentOfTool,
		components.Component(bad),
	} {
		info := &callbacks.RunInfo{Name: bad, Type: bad, Component: component}
		ctx := r.handler.OnStart(context.Background(), info, &model.CallbackInput{Config: &model.Config{Model: bad}})
		r.handler.OnEnd(ctx, info, &model.CallbackOutput{Config: &model.Config{Model: bad}, Message: &schema.Message{
			ResponseMeta: &schema.ResponseMeta{FinishReason: bad},
		}})
	}
	for _, span := range r.settle(t) {
		require.True(t, utf8.ValidString(span.Name()))
		require.Less(t, len(span.Name()), 600)
		for _, attr := range span.Attributes() {
			require.True(t, utf8.ValidString(attr.Value.Emit()))
			require.Less(t, len(attr.Value.Emit()), 300)
		}
	}
}

// proves O1, C59: without an SDK and with nil options nothing is recorded and nothing breaks.
func TestNilProviderO1C59(t *testing.T) {
	for _, h := range []callbacks.Handler{einotrace.New(), einotrace.New(nil, einotrace.WithTracerProvider(nil))} {
		r := record(t)
		run := loop(t, script(calls(call("c1", "bash", "{}")), answer("done")), bash(r))
		_, err := run.Invoke(context.Background(), user("go"), compose.WithCallbacks(h))
		require.NoError(t, err)
		_, err = query(context.Background(), agent(t, "fixer", script(answer("done"))), true, adk.WithCallbacks(h))
		require.NoError(t, err)
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
