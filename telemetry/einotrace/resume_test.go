package einotrace_test

import (
	"context"
	"encoding/json"
	"sync"
	"testing"

	"github.com/cloudwego/eino/adk"
	"github.com/cloudwego/eino/components/tool"
	"github.com/cloudwego/eino/compose"
	"github.com/cloudwego/eino/schema"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/carrel-dev/carrel/telemetry/einotrace"
	"github.com/carrel-dev/carrel/workspaces"
)

// checkpoints keeps them in memory, as bytes.
type checkpoints struct {
	mu   sync.Mutex
	byID map[string][]byte
}

func (c *checkpoints) Get(_ context.Context, id string) ([]byte, bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	data, ok := c.byID[id]
	return data, ok, nil
}

func (c *checkpoints) Set(_ context.Context, id string, data []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.byID == nil {
		c.byID = map[string][]byte{}
	}
	c.byID[id] = data
	return nil
}

// approve is a tool that interrupts its run once, and keeps the span it runs in.
func approve(r *recording, kept *string) *funcTool {
	return &funcTool{"deploy", func(ctx context.Context, _ string) (string, error) {
		if interrupted, _, _ := tool.GetInterruptState[string](ctx); !interrupted {
			*kept = einotrace.Traceparent(ctx)
			return "", tool.StatefulInterrupt(ctx, "may I?", "asked")
		}
		r.carrel(ctx, workspaces.Result{}, nil)
		return "deployed", nil
	}}
}

func interruptible(t *testing.T, r *recording) (a adk.Agent, kept *string) {
	t.Helper()
	kept = new(string)
	return agent(t, "ops", script(calls(call("c1", "deploy", "{}")), answer("done")), approve(r, kept)), kept
}

// proves O2: a resumed run is a new trace with a link to what the caller kept; an interrupt is no error.
func TestResumeO2(t *testing.T) {
	r := record(t)
	store := &checkpoints{}
	a, kept := interruptible(t, r)
	ctx := context.Background()
	runner := adk.NewRunner(ctx, adk.RunnerConfig{Agent: a, CheckPointStore: store})
	last, err := consume(runner.Query(ctx, "go", adk.WithCallbacks(r.handler), adk.WithCheckPointID("cp")))
	require.NoError(t, err)
	require.NotNil(t, last.Action.Interrupted)
	r.settle(t)
	first := r.find(t, "execute_tool deploy").SpanContext()
	golden(t, "interrupt.golden", render(r.spans.Ended(), false))

	// What is kept goes through JSON, into another process say.
	saved, err := json.Marshal(map[string]string{"trace": *kept})
	require.NoError(t, err)
	var loaded map[string]string
	require.NoError(t, json.Unmarshal(saved, &loaded))
	previous, err := einotrace.ParseTraceparent(loaded["trace"])
	require.NoError(t, err)
	require.Equal(t, first.SpanID(), previous.SpanID())

	before := len(r.spans.Ended())
	events, err := runner.Resume(einotrace.LinkTo(ctx, previous), "cp", adk.WithCallbacks(r.handler))
	require.NoError(t, err)
	_, err = consume(events)
	require.NoError(t, err)
	resumed := r.settle(t)[before:]
	golden(t, "resume.golden", render(resumed, false))
	for _, span := range resumed {
		require.NotEqual(t, first.TraceID(), span.SpanContext().TraceID())
		if !span.Parent().IsValid() {
			require.Len(t, span.Links(), 1)
			require.Equal(t, first.TraceID(), span.Links()[0].SpanContext.TraceID())
			require.Equal(t, first.SpanID(), span.Links()[0].SpanContext.SpanID())
		} else {
			require.Empty(t, span.Links())
		}
	}
}

// proves O2: with the session value the link is made without the caller.
func TestSessionResumeO2(t *testing.T) {
	r := record(t, einotrace.WithSessionValue(true))
	a, _ := interruptible(t, r)
	ctx := context.Background()
	runner := adk.NewRunner(ctx, adk.RunnerConfig{Agent: a, CheckPointStore: &checkpoints{}})
	_, err := consume(runner.Query(ctx, "go", adk.WithCallbacks(r.handler), adk.WithCheckPointID("cp")))
	require.NoError(t, err)
	r.settle(t)
	first := r.find(t, "invoke_agent ops").SpanContext()
	before := len(r.spans.Ended())
	events, err := runner.Resume(ctx, "cp", adk.WithCallbacks(r.handler))
	require.NoError(t, err)
	_, err = consume(events)
	require.NoError(t, err)
	for _, span := range r.settle(t)[before:] {
		require.NotEqual(t, first.TraceID(), span.SpanContext().TraceID())
		if span.Name() == "invoke_agent ops" {
			require.Len(t, span.Links(), 1)
			require.Equal(t, first.SpanID(), span.Links()[0].SpanContext.SpanID())
		}
	}
}

// proves O2: a graph's interrupt is no error, its resumed run has the link.
func TestGraphResumeO2(t *testing.T) {
	r := record(t)
	kept := new(string)
	node, err := compose.NewToolNode(context.Background(), &compose.ToolsNodeConfig{Tools: []tool.BaseTool{approve(r, kept)}})
	require.NoError(t, err)
	g := compose.NewGraph[*schema.Message, []*schema.Message]()
	require.NoError(t, g.AddToolsNode("tools", node))
	require.NoError(t, g.AddEdge(compose.START, "tools"))
	require.NoError(t, g.AddEdge("tools", compose.END))
	run, err := g.Compile(context.Background(), compose.WithGraphName("ops"), compose.WithCheckPointStore(&checkpoints{}))
	require.NoError(t, err)
	ctx := context.Background()
	_, err = run.Invoke(ctx, calls(call("c1", "deploy", "{}")), compose.WithCallbacks(r.handler), compose.WithCheckPointID("cp"))
	require.Error(t, err)
	for _, span := range r.settle(t) {
		require.Equal(t, codes.Unset, span.Status().Code, span.Name())
		require.Equal(t, "true", value(span, "carrel.interrupted"), span.Name())
	}
	previous, err := einotrace.ParseTraceparent(*kept)
	require.NoError(t, err)
	before := len(r.spans.Ended())
	_, err = run.Invoke(einotrace.LinkTo(ctx, previous), nil, compose.WithCallbacks(r.handler), compose.WithCheckPointID("cp"))
	require.NoError(t, err)
	require.Equal(t, "graph ops +link\n  execute_tool deploy\n    carrel.exec\n", outline(r.settle(t)[before:]))
}

// proves O2: what is no span context is refused, and links nothing.
func TestTraceparentO2(t *testing.T) {
	require.Empty(t, einotrace.Traceparent(context.Background()))
	for _, text := range []string{"", "x", "00-00000000000000000000000000000000-0000000000000000-01", "\xff"} {
		_, err := einotrace.ParseTraceparent(text)
		require.Error(t, err, text)
	}
	require.Equal(t, context.Background(), einotrace.LinkTo(context.Background(), trace.SpanContext{}))
}
