package einotrace_test

import (
	"context"
	"testing"

	"github.com/cloudwego/eino/adk"
	"github.com/cloudwego/eino/callbacks"
	"github.com/cloudwego/eino/components"
	"github.com/cloudwego/eino/components/model"
	"github.com/cloudwego/eino/compose"
	"github.com/cloudwego/eino/schema"
	"github.com/stretchr/testify/require"

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
			message, err := invoke(context.Background(), run, streaming, "go", compose.WithCallbacks(r.handler))
			require.NoError(t, err)
			require.Equal(t, "done", message.Content)
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

// proves O1: model name, provider and token usage where a model tells them; the largest of what chunks say.
func TestModelO1(t *testing.T) {
	r := record(t)
	run := loop(t, knownModel{script(answer("done"))}, bash(r))
	_, err := run.Invoke(context.Background(), user("go"), compose.WithCallbacks(r.handler))
	require.NoError(t, err)

	streamed := loop(t, script(answer("done")), bash(r))
	_, err = invoke(context.Background(), streamed, true, "go", compose.WithCallbacks(r.handler))
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

// proves O2: all spans carry the run, also where another handler puts it into the context, before or after this one.
func TestRunIDO2(t *testing.T) {
	manager, err := workspaces.NewManager(&faultyProvider{}, workspaces.Options{})
	require.NoError(t, err)
	defer manager.Close(context.Background())
	run, err := manager.Open("run-7")
	require.NoError(t, err)
	defer run.Release(context.Background(), workspaces.Completed)
	opener := callbacks.NewHandlerBuilder().OnStartFn(func(ctx context.Context, _ *callbacks.RunInfo, _ callbacks.CallbackInput) context.Context {
		return workspaces.ContextWithRun(ctx, run)
	}).OnStartWithStreamInputFn(func(ctx context.Context, _ *callbacks.RunInfo, input *schema.StreamReader[callbacks.CallbackInput]) context.Context {
		input.Close()
		return workspaces.ContextWithRun(ctx, run)
	}).Build()
	echo := &funcTool{"echo", func(context.Context, string) (string, error) { return "ok", nil }}
	crash := &funcTool{"crash", func(context.Context, string) (string, error) { panic("boom") }}
	for _, streaming := range []bool{false, true} {
		r := record(t)
		for _, handlers := range [][]callbacks.Handler{{opener, r.handler}, {r.handler, opener}} {
			graph := loop(t, script(calls(call("c1", "echo", "{}")), answer("done")), echo)
			_, err := invoke(context.Background(), graph, streaming, "go", compose.WithCallbacks(handlers...))
			require.NoError(t, err)
			a := agent(t, "fixer", script(calls(call("c1", "echo", "{}")), answer("done")), echo)
			_, err = query(context.Background(), a, streaming, adk.WithCallbacks(handlers...))
			require.NoError(t, err)
			graph = loop(t, script(calls(call("c1", "crash", "{}"))), crash)
			_, err = invoke(context.Background(), graph, streaming, "go", compose.WithCallbacks(handlers...))
			require.Error(t, err)
		}
		for _, span := range r.settle(t) {
			require.Equal(t, "run-7", value(span, "carrel.run.id"), span.Name())
		}
	}
}

// proves C59: without callbacks in the context, carrel's spans begin a trace of their own.
func TestWithoutCallbacksC59(t *testing.T) {
	r := record(t)
	_, err := bash(r).InvokableRun(context.Background(), "{}")
	require.NoError(t, err)
	_, err = invoke(context.Background(), loop(t, script(calls(call("c1", "bash", "{}")), answer("done")), bash(r)), true, "go")
	require.NoError(t, err)
	require.Equal(t, "carrel.exec\ncarrel.exec\n", outline(r.settle(t)))
}
