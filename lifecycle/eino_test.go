package lifecycle_test

import (
	"context"
	"errors"
	"io"
	"sync"
	"testing"

	"github.com/cloudwego/eino/adk"
	"github.com/cloudwego/eino/components/model"
	"github.com/cloudwego/eino/components/tool"
	"github.com/cloudwego/eino/compose"
	"github.com/cloudwego/eino/schema"
	"github.com/stretchr/testify/require"

	"github.com/carrel-dev/carrel/lifecycle"
)

// scriptedModel answers one message after the other.
type scriptedModel struct {
	mu      sync.Mutex
	replies []*schema.Message
}

func script(replies ...*schema.Message) *scriptedModel { return &scriptedModel{replies: replies} }

func (m *scriptedModel) Generate(context.Context, []*schema.Message, ...model.Option) (*schema.Message, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.replies) == 0 {
		return nil, errors.New("the script is at its end")
	}
	reply := m.replies[0]
	m.replies = m.replies[1:]
	return reply, nil
}

func (m *scriptedModel) Stream(ctx context.Context, input []*schema.Message, options ...model.Option) (*schema.StreamReader[*schema.Message], error) {
	reply, err := m.Generate(ctx, input, options...)
	if err != nil {
		return nil, err
	}
	return schema.StreamReaderFromArray([]*schema.Message{reply}), nil
}

func (m *scriptedModel) WithTools([]*schema.ToolInfo) (model.ToolCallingChatModel, error) {
	return m, nil
}

func call(names ...string) *schema.Message {
	var calls []schema.ToolCall
	for _, name := range names {
		arguments := `{"request":"go","agent_name":"expert"}`
		calls = append(calls, schema.ToolCall{ID: "call-" + name, Type: "function", Function: schema.FunctionCall{Name: name, Arguments: arguments}})
	}
	return schema.AssistantMessage("", calls)
}

func answer() *schema.Message { return schema.AssistantMessage("done", nil) }

// An act is what a test has done inside a run: as the tool "act", or as a node.
type act func(ctx context.Context) (string, error)

func (a act) Info(context.Context) (*schema.ToolInfo, error) {
	return &schema.ToolInfo{Name: "act", Desc: "acts"}, nil
}

func (a act) InvokableRun(ctx context.Context, _ string, _ ...tool.Option) (string, error) {
	return a(ctx)
}

func (a act) node() *compose.Lambda {
	return compose.InvokableLambda(func(ctx context.Context, _ string) (string, error) { return a(ctx) })
}

func agent(t *testing.T, name string, m model.BaseChatModel, tools ...tool.BaseTool) adk.Agent {
	t.Helper()
	a, err := adk.NewChatModelAgent(context.Background(), &adk.ChatModelAgentConfig{
		Name: name, Description: "an agent", Instruction: "help", Model: m,
		ToolsConfig: adk.ToolsConfig{ToolsNodeConfig: compose.ToolsNodeConfig{Tools: tools}},
	})
	require.NoError(t, err)
	return a
}

func toolsOf(do act) []tool.BaseTool { return []tool.BaseTool{do} }

// worker is an agent that calls act once.
func worker(t *testing.T, name string, do act) adk.Agent {
	t.Helper()
	return agent(t, name, script(call("act"), answer()), do)
}

// A subject is something of Eino's that can own a run: a graph, or else an agent.
type subject struct {
	graph compose.Runnable[string, string]
	agent adk.Agent
	store *checkpoints
}

func compiled(t *testing.T, g interface {
	Compile(context.Context, ...compose.GraphCompileOption) (compose.Runnable[string, string], error)
}) *subject {
	t.Helper()
	store := &checkpoints{}
	r, err := g.Compile(context.Background(), compose.WithGraphName("owner"), compose.WithCheckPointStore(store))
	require.NoError(t, err)
	return &subject{graph: r, store: store}
}

func oneNode(t *testing.T, do act) *compose.Graph[string, string] {
	t.Helper()
	g := compose.NewGraph[string, string]()
	require.NoError(t, g.AddLambdaNode("act", do.node()))
	require.NoError(t, g.AddEdge(compose.START, "act"))
	require.NoError(t, g.AddEdge("act", compose.END))
	return g
}

// A kind is one way in which Eino runs act. Graphs are those that are no agents.
type kind struct {
	name    string
	isAgent bool
	make    func(t *testing.T, do act) *subject
}

func kinds() []kind {
	ctx := context.Background()
	return []kind{
		{"graph", false, func(t *testing.T, do act) *subject { return compiled(t, oneNode(t, do)) }},
		{"graph in a graph", false, func(t *testing.T, do act) *subject {
			g := compose.NewGraph[string, string]()
			require.NoError(t, g.AddGraphNode("inner", oneNode(t, do)))
			require.NoError(t, g.AddEdge(compose.START, "inner"))
			require.NoError(t, g.AddEdge("inner", compose.END))
			return compiled(t, g)
		}},
		{"chain", false, func(t *testing.T, do act) *subject {
			return compiled(t, compose.NewChain[string, string]().AppendLambda(do.node()))
		}},
		{"workflow", false, func(t *testing.T, do act) *subject {
			w := compose.NewWorkflow[string, string]()
			w.AddLambdaNode("act", do.node()).AddInput(compose.START)
			w.End().AddInput("act")
			return compiled(t, w)
		}},
		{"agent", true, func(t *testing.T, do act) *subject { return &subject{agent: worker(t, "worker", do)} }},
		{"sequential agents", true, func(t *testing.T, do act) *subject {
			a, err := adk.NewSequentialAgent(ctx, &adk.SequentialAgentConfig{Name: "all", Description: "one after the other", SubAgents: []adk.Agent{
				agent(t, "talker", script(answer())), worker(t, "worker", do), agent(t, "last", script(answer())),
			}})
			require.NoError(t, err)
			return &subject{agent: a}
		}},
		{"parallel agents", true, func(t *testing.T, do act) *subject {
			a, err := adk.NewParallelAgent(ctx, &adk.ParallelAgentConfig{Name: "all", Description: "side by side", SubAgents: []adk.Agent{
				agent(t, "talker", script(answer())), worker(t, "worker", do),
			}})
			require.NoError(t, err)
			return &subject{agent: a}
		}},
		{"transfer", true, func(t *testing.T, do act) *subject {
			a, err := adk.SetSubAgents(ctx, agent(t, "first", script(call(adk.TransferToAgentToolName))), []adk.Agent{worker(t, "expert", do)})
			require.NoError(t, err)
			return &subject{agent: a}
		}},
		{"agent as a tool", true, func(t *testing.T, do act) *subject {
			return &subject{agent: agent(t, "outer", script(call("inner"), answer()), adk.NewAgentTool(ctx, worker(t, "inner", do)))}
		}},
	}
}

// A mode is how a subject is run.
type mode struct {
	kind
	stream bool
	events bool // through lifecycle.Events
}

// background says whether a run settles after it seems to have ended, when it ends without an error.
func (m mode) background() bool { return m.isAgent && !m.events || !m.isAgent && m.stream }

// each runs a test for every kind, invoked and streamed, and agents with and without lifecycle.Events.
func each(t *testing.T, test func(t *testing.T, m mode)) {
	for _, k := range kinds() {
		t.Run(k.name, func(t *testing.T) {
			for _, stream := range []bool{false, true} {
				name := map[bool]string{false: "invoke", true: "stream"}[stream]
				t.Run(name, func(t *testing.T) { test(t, mode{k, stream, false}) })
				if k.isAgent {
					t.Run(name+" with Events", func(t *testing.T) { test(t, mode{k, stream, true}) })
				}
			}
		})
	}
}

func eachAgent(t *testing.T, test func(t *testing.T, m mode)) {
	each(t, func(t *testing.T, m mode) {
		if m.isAgent {
			test(t, m)
		}
	})
}

// context names the run where Events needs that.
func (m mode) context() context.Context {
	if m.events {
		return lifecycle.WithRunID(context.Background(), "")
	}
	return context.Background()
}

// run runs a subject to its end.
func (m mode) run(ctx context.Context, s *subject, hook *lifecycle.Hook, options ...adk.AgentRunOption) (interrupted bool, err error) {
	if s.agent == nil {
		return m.runGraph(ctx, s, compose.WithCallbacks(hook), compose.WithCheckPointID("cp"))
	}
	s.store = &checkpoints{}
	runner := adk.NewRunner(ctx, adk.RunnerConfig{Agent: s.agent, EnableStreaming: m.stream, CheckPointStore: s.store})
	options = append(options, adk.WithCallbacks(hook), adk.WithCheckPointID("cp"))
	return m.consume(ctx, runner.Query(ctx, "go", options...))
}

// resume goes on with a subject that is interrupted.
func (m mode) resume(ctx context.Context, s *subject, hook *lifecycle.Hook, options ...adk.AgentRunOption) (interrupted bool, err error) {
	if s.agent == nil {
		return m.runGraph(ctx, s, compose.WithCallbacks(hook), compose.WithCheckPointID("cp"))
	}
	runner := adk.NewRunner(ctx, adk.RunnerConfig{Agent: s.agent, EnableStreaming: m.stream, CheckPointStore: s.store})
	events, err := runner.Resume(ctx, "cp", append(options, adk.WithCallbacks(hook))...)
	if err != nil {
		return false, err
	}
	return m.consume(ctx, events)
}

func (m mode) runGraph(ctx context.Context, s *subject, options ...compose.Option) (interrupted bool, err error) {
	if m.stream {
		var out *schema.StreamReader[string]
		if out, err = s.graph.Stream(ctx, "go", options...); err == nil {
			err = readAll(out)
		}
	} else {
		_, err = s.graph.Invoke(ctx, "go", options...)
	}
	_, interrupted = compose.ExtractInterruptInfo(err)
	return interrupted, err
}

func (m mode) consume(ctx context.Context, events *adk.AsyncIterator[*adk.AgentEvent]) (interrupted bool, err error) {
	if m.events {
		events = lifecycle.Events(ctx, events)
	}
	return consume(events)
}

func readAll(stream *schema.StreamReader[string]) error {
	defer stream.Close()
	for {
		_, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// consume reads a run to its end.
func consume(events *adk.AsyncIterator[*adk.AgentEvent]) (interrupted bool, err error) {
	for {
		event, ok := events.Next()
		if !ok {
			return interrupted, err
		}
		if event.Err != nil && err == nil {
			err = event.Err
		}
		if event.Action != nil && event.Action.Interrupted != nil {
			interrupted = true
		}
		if event.Output != nil && event.Output.MessageOutput != nil {
			if _, failed := event.Output.MessageOutput.GetMessage(); failed != nil && err == nil {
				err = failed
			}
		}
	}
}
