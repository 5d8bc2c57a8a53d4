package einotrace_test

import (
	"context"
	"errors"
	"testing"

	"github.com/cloudwego/eino/components/tool"
	"github.com/cloudwego/eino/compose"
	"github.com/stretchr/testify/require"

	"github.com/carrel-dev/carrel/telemetry/einotrace"
	"github.com/carrel-dev/carrel/workspaces"
)

// proves C59, M5: of a graph that failed, a node that runs on ends with it, and starts no span that nobody ends. Eino
// returns while a parallel node runs on where nodes start as soon as their predecessors are done.
func TestStragglerC59(t *testing.T) {
	r := record(t)
	running, goOn, done := make(chan struct{}), make(chan struct{}), make(chan struct{})
	late := &funcTool{"late", func(context.Context, string) (string, error) { panic("boom") }}
	node, err := compose.NewToolNode(context.Background(), &compose.ToolsNodeConfig{Tools: []tool.BaseTool{late}})
	require.NoError(t, err)

	g := compose.NewGraph[string, map[string]any]()
	require.NoError(t, g.AddLambdaNode("slow", compose.InvokableLambda(func(ctx context.Context, _ string) (string, error) {
		defer close(done)
		close(running)
		<-goOn
		// The tool panics, and then its carrel operation comes, both after the graph's end.
		func() {
			defer func() { _ = recover() }()
			_, _ = node.Invoke(ctx, calls(call("c1", "late", "{}")))
		}()
		r.carrel(ctx, workspaces.Result{}, workspaces.ErrRunEnded)
		return "", nil
	}), compose.WithNodeName("slow"), compose.WithOutputKey("slow")))
	require.NoError(t, g.AddLambdaNode("fails", compose.InvokableLambda(func(context.Context, string) (string, error) {
		<-running
		return "", errors.New("x")
	}), compose.WithNodeName("fails"), compose.WithOutputKey("fails")))
	for _, name := range []string{"slow", "fails"} {
		require.NoError(t, g.AddEdge(compose.START, name))
		require.NoError(t, g.AddEdge(name, compose.END))
	}
	run, err := g.Compile(context.Background(), compose.WithGraphName("race"), compose.WithNodeTriggerMode(compose.AllPredecessor))
	require.NoError(t, err)

	all := einotrace.New(einotrace.WithTracerProvider(r.tracers), einotrace.WithNodes(true))
	_, err = run.Invoke(context.Background(), "x", compose.WithCallbacks(all))
	require.Error(t, err)
	require.Equal(t, `graph race [Error: _OTHER]
  lambda fails [Error: _OTHER]
  lambda slow [Error: abandoned]
`, outline(r.settle(t)))

	close(goOn)
	<-done
	require.Equal(t, `graph race [Error: _OTHER]
  lambda fails [Error: _OTHER]
  lambda slow [Error: abandoned]
    carrel.exec [Error: run_ended]
`, outline(r.settle(t)))
}
