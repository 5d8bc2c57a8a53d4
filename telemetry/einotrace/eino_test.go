package einotrace_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/cloudwego/eino/adk"
	"github.com/cloudwego/eino/callbacks"
	"github.com/cloudwego/eino/components"
	"github.com/cloudwego/eino/components/model"
	"github.com/cloudwego/eino/components/tool"
	"github.com/cloudwego/eino/compose"
	"github.com/cloudwego/eino/schema"
	"github.com/stretchr/testify/require"
)

// scriptedModel answers one message after the other, and after the last with an error.
type scriptedModel struct {
	mu      sync.Mutex
	replies []*schema.Message
}

func script(replies ...*schema.Message) *scriptedModel { return &scriptedModel{replies: replies} }

func (m *scriptedModel) next() (*schema.Message, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.replies) == 0 {
		return nil, errors.New("model-SECRET is at its end")
	}
	reply := m.replies[0]
	m.replies = m.replies[1:]
	return reply, nil
}

func (m *scriptedModel) GetType() string { return "Scripted" }

func (m *scriptedModel) WithTools([]*schema.ToolInfo) (model.ToolCallingChatModel, error) {
	return m, nil
}

func (m *scriptedModel) Generate(context.Context, []*schema.Message, ...model.Option) (*schema.Message, error) {
	return m.next()
}

func (m *scriptedModel) Stream(context.Context, []*schema.Message, ...model.Option) (*schema.StreamReader[*schema.Message], error) {
	reply, err := m.next()
	if err != nil {
		return nil, err
	}
	if len(reply.ToolCalls) > 0 || len(reply.Content) < 2 {
		return schema.StreamReaderFromArray([]*schema.Message{reply}), nil
	}
	first, last := *reply, *reply
	first.Content, last.Content = reply.Content[:1], reply.Content[1:]
	first.ResponseMeta = nil
	return schema.StreamReaderFromArray([]*schema.Message{&first, &last}), nil
}

// knownModel calls back itself, as models of eino-ext do, and so can say its name and usage.
type knownModel struct{ *scriptedModel }

func (m knownModel) GetType() string          { return "OpenAI" }
func (m knownModel) IsCallbacksEnabled() bool { return true }

func (m knownModel) WithTools([]*schema.ToolInfo) (model.ToolCallingChatModel, error) { return m, nil }

func (m knownModel) Generate(ctx context.Context, input []*schema.Message, opts ...model.Option) (*schema.Message, error) {
	ctx = callbacks.EnsureRunInfo(ctx, m.GetType(), components.ComponentOfChatModel)
	ctx = callbacks.OnStart(ctx, &model.CallbackInput{Messages: input, Config: &model.Config{Model: "gpt-x"}})
	reply, err := m.next()
	if err != nil {
		callbacks.OnError(ctx, err)
		return nil, err
	}
	callbacks.OnEnd(ctx, &model.CallbackOutput{
		Message: reply, Config: &model.Config{Model: "gpt-x"},
		TokenUsage: &model.TokenUsage{PromptTokens: 100, CompletionTokens: 20, PromptTokenDetails: model.PromptTokenDetails{CachedTokens: 64}},
	})
	return reply, nil
}

func call(id, name, arguments string) schema.ToolCall {
	return schema.ToolCall{ID: id, Type: "function", Function: schema.FunctionCall{Name: name, Arguments: arguments}}
}

func calls(calls ...schema.ToolCall) *schema.Message { return schema.AssistantMessage("", calls) }

func answer(text string) *schema.Message {
	message := schema.AssistantMessage(text, nil)
	message.ResponseMeta = &schema.ResponseMeta{FinishReason: "stop", Usage: &schema.TokenUsage{PromptTokens: 12, CompletionTokens: 3}}
	return message
}

// funcTool is a tool that is a function.
type funcTool struct {
	name string
	run  func(ctx context.Context, arguments string) (string, error)
}

func (f *funcTool) Info(context.Context) (*schema.ToolInfo, error) {
	return &schema.ToolInfo{Name: f.name, Desc: "runs"}, nil
}

func (f *funcTool) InvokableRun(ctx context.Context, arguments string, _ ...tool.Option) (string, error) {
	return f.run(ctx, arguments)
}

// streamTool is a tool whose result comes in chunks.
type streamTool struct {
	name string
	run  func(ctx context.Context) *schema.StreamReader[string]
}

func (s *streamTool) Info(context.Context) (*schema.ToolInfo, error) {
	return &schema.ToolInfo{Name: s.name, Desc: "streams"}, nil
}

func (s *streamTool) StreamableRun(ctx context.Context, _ string, _ ...tool.Option) (*schema.StreamReader[string], error) {
	return s.run(ctx), nil
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

// query runs an agent to its end and returns what happened last.
func query(ctx context.Context, a adk.Agent, streaming bool, opts ...adk.AgentRunOption) (last *adk.AgentEvent, err error) {
	runner := adk.NewRunner(ctx, adk.RunnerConfig{Agent: a, EnableStreaming: streaming})
	return consume(runner.Query(ctx, "go", opts...))
}

func consume(events *adk.AsyncIterator[*adk.AgentEvent]) (last *adk.AgentEvent, err error) {
	for {
		event, ok := events.Next()
		if !ok {
			return last, err
		}
		last = event
		if event.Err != nil {
			err = event.Err
		}
		if event.Output != nil && event.Output.MessageOutput != nil {
			if _, streamErr := event.Output.MessageOutput.GetMessage(); streamErr != nil {
				err = streamErr
			}
		}
	}
}

// loop is a graph of a model and its tools.
func loop(t *testing.T, m model.BaseChatModel, tools ...tool.BaseTool) compose.Runnable[[]*schema.Message, *schema.Message] {
	t.Helper()
	ctx := context.Background()
	node, err := compose.NewToolNode(ctx, &compose.ToolsNodeConfig{Tools: tools})
	require.NoError(t, err)
	g := compose.NewGraph[[]*schema.Message, *schema.Message]()
	require.NoError(t, g.AddLambdaNode("prepare", compose.InvokableLambda(func(_ context.Context, in []*schema.Message) ([]*schema.Message, error) {
		return in, nil
	}), compose.WithNodeName("prepare")))
	require.NoError(t, g.AddChatModelNode("model", m, compose.WithNodeName("model")))
	require.NoError(t, g.AddToolsNode("tools", node, compose.WithNodeName("tools")))
	require.NoError(t, g.AddEdge(compose.START, "prepare"))
	require.NoError(t, g.AddEdge("prepare", "model"))
	require.NoError(t, g.AddBranch("model", compose.NewStreamGraphBranch(
		func(_ context.Context, in *schema.StreamReader[*schema.Message]) (string, error) {
			defer in.Close()
			message, err := in.Recv()
			if err != nil {
				return "", err
			}
			if len(message.ToolCalls) > 0 {
				return "tools", nil
			}
			return compose.END, nil
		}, map[string]bool{"tools": true, compose.END: true})))
	require.NoError(t, g.AddEdge("tools", "model"))
	r, err := g.Compile(ctx, compose.WithGraphName("loop"))
	require.NoError(t, err)
	return r
}

func user(text string) []*schema.Message { return []*schema.Message{schema.UserMessage(text)} }

// invoke runs a graph to its end, its output streamed or whole.
func invoke(ctx context.Context, run compose.Runnable[[]*schema.Message, *schema.Message], streaming bool, question string, opts ...compose.Option) (*schema.Message, error) {
	if !streaming {
		return run.Invoke(ctx, user(question), opts...)
	}
	stream, err := run.Stream(ctx, user(question), opts...)
	if err != nil {
		return nil, err
	}
	return schema.ConcatMessageStream(stream)
}
