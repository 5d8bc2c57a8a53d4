package einotrace_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/cloudwego/eino/adk"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/codes"

	"github.com/carrel-dev/carrel/workspaces"
)

// proves C59: an ADK cancel, which looks like an interrupt to a handler, ends every span. Eino leaves a tool that is
// cancelled immediately alone: it runs on, with a context that is alive.
func TestADKCancelC59(t *testing.T) {
	for name, c := range map[string]struct {
		mode  adk.CancelMode
		tools string // when the events are over
		late  string // when the tool is
	}{
		"after tool calls": {
			mode:  adk.CancelAfterToolCalls,
			tools: "      execute_tool bash\n        carrel.exec\n",
			late:  "      execute_tool bash\n        carrel.exec\n",
		},
		"immediate": {
			mode:  adk.CancelImmediate,
			tools: "      execute_tool bash [Error: abandoned]\n",
			late:  "      execute_tool bash [Error: abandoned]\n        carrel.exec\n",
		},
	} {
		for _, streaming := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/streaming=%t", name, streaming), func(t *testing.T) {
				r := record(t)
				running, goOn, done := make(chan struct{}), make(chan struct{}), make(chan struct{})
				bash := &funcTool{"bash", func(ctx context.Context, _ string) (string, error) {
					defer close(done)
					close(running)
					<-goOn
					r.carrel(ctx, workspaces.Result{}, ctx.Err())
					return "ok", nil
				}}
				a := agent(t, "fixer", script(calls(call("c1", "bash", "{}")), answer("done")), bash)
				runner := adk.NewRunner(context.Background(), adk.RunnerConfig{Agent: a, EnableStreaming: streaming, CheckPointStore: &checkpoints{}})
				option, cancel := adk.WithCancel()
				events := runner.Query(context.Background(), "go", option, adk.WithCallbacks(r.handler), adk.WithCheckPointID("cp"))
				<-running
				handle, ok := cancel(adk.WithAgentCancelMode(c.mode))
				require.True(t, ok)
				if c.mode == adk.CancelAfterToolCalls {
					close(goOn)
				}
				_, err := consume(events)
				var cancelled *adk.CancelError
				require.ErrorAs(t, err, &cancelled)
				require.NoError(t, handle.Wait())
				tree := outline(r.settle(t))
				require.Equal(t, c.tools, tree[max(0, len(tree)-len(c.tools)):])

				if c.mode == adk.CancelImmediate {
					close(goOn)
				}
				<-done
				tree = outline(r.settle(t))
				require.Equal(t, c.late, tree[max(0, len(tree)-len(c.late)):])
				root := r.find(t, "invoke_agent fixer")
				require.Equal(t, codes.Unset, root.Status().Code)
				require.Equal(t, "true", value(root, "carrel.interrupted"))
			})
		}
	}
}
