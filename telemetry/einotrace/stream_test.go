package einotrace_test

import (
	"context"
	"errors"
	"testing"

	"github.com/cloudwego/eino/callbacks"
	"github.com/cloudwego/eino/components"
	"github.com/cloudwego/eino/compose"
	"github.com/cloudwego/eino/schema"
	"github.com/stretchr/testify/require"
)

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

// proves C59: a stream may outlast the graph that it came from; its span ends with the stream, not before and not twice.
func TestStreamOutlastsCallerC59(t *testing.T) {
	r := record(t)
	graph := &callbacks.RunInfo{Name: "g", Component: compose.ComponentOfGraph}
	tail := &callbacks.RunInfo{Name: "tail", Component: components.ComponentOfTool}
	above := r.handler.OnStart(context.Background(), graph, nil)
	below := r.handler.OnStart(above, tail, "in")
	output, writer := schema.Pipe[callbacks.CallbackOutput](1)
	r.handler.OnEndWithStreamOutput(below, tail, output)
	r.handler.OnEnd(above, graph, "out")
	require.Len(t, r.spans.Ended(), 1)
	require.Equal(t, "graph g", r.spans.Ended()[0].Name())

	r.handler.OnError(below, tail, errors.New("the stream broke off, too"))
	require.Len(t, r.spans.Ended(), 2)
	writer.Close()
	require.Equal(t, "graph g\n  execute_tool tail [Error: _OTHER]\n", outline(r.settle(t)))
}
