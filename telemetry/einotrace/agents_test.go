package einotrace_test

import (
	"context"
	"testing"

	"github.com/cloudwego/eino/adk"
	"github.com/stretchr/testify/require"

	"github.com/carrel-dev/carrel/telemetry/einotrace"
	"github.com/carrel-dev/carrel/workspaces"
)

// proves O1: an agent as a tool hangs below the tool.
func TestAgentToolO1(t *testing.T) {
	r := record(t)
	inner := agent(t, "inner", script(calls(call("c2", "bash", "{}")), answer("in")), bash(r))
	outer := agent(t, "outer", script(calls(call("c1", "inner", `{"request":"go"}`)), answer("out")), adk.NewAgentTool(context.Background(), inner))
	_, err := query(context.Background(), outer, true, adk.WithCallbacks(r.handler))
	require.NoError(t, err)
	require.Equal(t, `invoke_agent outer
  chain outer
    graph ReAct
      chat (client)
      chat (client)
      execute_tool inner
        invoke_agent inner
          chain inner
            graph ReAct
              chat (client)
              chat (client)
              execute_tool bash
                carrel.exec
`, outline(r.settle(t)))
}

// proves O1: agents of a workflow hang below it.
func TestWorkflowAgentsO1(t *testing.T) {
	ctx := context.Background()
	worker := func(r *recording, name string) adk.Agent {
		return agent(t, name, script(calls(call("c1", "bash", "{}")), answer("done")), bash(r))
	}
	const tree = `
  invoke_agent a
    chain a
      graph ReAct
        chat (client)
        chat (client)
        execute_tool bash
          carrel.exec
  invoke_agent b
    chain b
      graph ReAct
        chat (client)
        chat (client)
        execute_tool bash
          carrel.exec
`
	t.Run("sequential", func(t *testing.T) {
		r := record(t)
		a, err := adk.NewSequentialAgent(ctx, &adk.SequentialAgentConfig{Name: "both", SubAgents: []adk.Agent{worker(r, "a"), worker(r, "b")}})
		require.NoError(t, err)
		_, err = query(ctx, a, false, adk.WithCallbacks(r.handler))
		require.NoError(t, err)
		require.Equal(t, "invoke_agent both"+tree, outline(r.settle(t)))
	})
	t.Run("parallel", func(t *testing.T) {
		r := record(t)
		a, err := adk.NewParallelAgent(ctx, &adk.ParallelAgentConfig{Name: "both", SubAgents: []adk.Agent{worker(r, "a"), worker(r, "b")}})
		require.NoError(t, err)
		_, err = query(ctx, a, true, adk.WithCallbacks(r.handler))
		require.NoError(t, err)
		require.Equal(t, "invoke_agent both"+tree, outline(r.settle(t)))
	})
}

// proves O1: where the target of transfer_to_agent hangs. Eino gives it the context from before the first agent.
func TestTransferO1(t *testing.T) {
	team := func(r *recording) adk.Agent {
		expert := agent(t, "expert", script(calls(call("c2", "bash", "{}")), answer("done")), bash(r))
		first := agent(t, "first", script(calls(call("c1", "transfer_to_agent", `{"agent_name":"expert"}`))))
		a, err := adk.SetSubAgents(context.Background(), first, []adk.Agent{expert})
		require.NoError(t, err)
		return a
	}
	const expert = `invoke_agent expert
    chain expert
      graph ReAct
        chat (client)
        chat (client)
        execute_tool bash
          carrel.exec
`
	const first = `invoke_agent first
    chain first
      graph ReAct
        chat (client)
        execute_tool transfer_to_agent
`
	t.Run("below the caller's span", func(t *testing.T) {
		r := record(t)
		ctx, span := r.tracers.Tracer("test").Start(context.Background(), "request")
		_, err := query(ctx, team(r), false, adk.WithCallbacks(r.handler))
		require.NoError(t, err)
		span.End()
		require.Equal(t, "request\n  "+expert+"  "+first, outline(r.settle(t)))
	})
	t.Run("below the first agent with the session value", func(t *testing.T) {
		r := record(t, einotrace.WithSessionValue(true))
		_, err := query(context.Background(), team(r), false, adk.WithCallbacks(r.handler))
		require.NoError(t, err)
		r.settle(t)
		target, source := r.find(t, "invoke_agent expert"), r.find(t, "invoke_agent first")
		require.Equal(t, source.SpanContext().SpanID(), target.Parent().SpanID())
		require.Equal(t, source.SpanContext().TraceID(), r.find(t, "carrel.exec").SpanContext().TraceID())
		require.Empty(t, target.Links())
	})
	t.Run("a trace of its own otherwise", func(t *testing.T) {
		r := record(t)
		_, err := query(context.Background(), team(r), false, adk.WithCallbacks(r.handler))
		require.NoError(t, err)
		r.settle(t)
		require.False(t, r.find(t, "invoke_agent expert").Parent().IsValid())
	})
}

// proves O1, C59: a tool that fails inside an agent as a tool fails its own span, not the outer one.
func TestNestedToolErrorO1(t *testing.T) {
	r := record(t)
	fails := &funcTool{"bash", func(ctx context.Context, _ string) (string, error) {
		workspaces.ReportToolError(ctx, workspaces.ErrNotFound)
		return "no such workspace", nil
	}}
	inner := agent(t, "inner", script(calls(call("c2", "bash", "{}")), answer("in")), fails)
	outer := agent(t, "outer", script(calls(call("c1", "inner", `{"request":"go"}`)), answer("out")), adk.NewAgentTool(context.Background(), inner))
	_, err := query(context.Background(), outer, false, adk.WithCallbacks(r.handler))
	require.NoError(t, err)
	r.settle(t)
	require.Equal(t, "not_found", value(r.find(t, "execute_tool bash"), "error.type"))
	require.Equal(t, "true", value(r.find(t, "execute_tool bash"), "carrel.tool.error_result"))
	require.Empty(t, value(r.find(t, "execute_tool inner"), "error.type"))
}
