package tools

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/cloudwego/eino/adk"
	"github.com/cloudwego/eino/components/model"
	"github.com/cloudwego/eino/components/tool"
	"github.com/cloudwego/eino/compose"
	"github.com/cloudwego/eino/schema"
	"github.com/stretchr/testify/require"

	"github.com/carrel-dev/carrel/workspaces"
)

// A scriptedModel answers with the next of its messages, and remembers what it was shown.
type scriptedModel struct {
	mu      sync.Mutex
	replies []*schema.Message
	seen    [][]*schema.Message
}

func (m *scriptedModel) Generate(_ context.Context, input []*schema.Message, _ ...model.Option) (*schema.Message, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.seen = append(m.seen, input)
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

// results are the last tool messages that the model saw, by tool.
func (m *scriptedModel) results() map[string]string {
	m.mu.Lock()
	defer m.mu.Unlock()
	found := make(map[string]string)
	for _, message := range slices.Concat(m.seen...) {
		if message.Role == schema.Tool {
			found[message.ToolName] = message.Content
		}
	}
	return found
}

// step is a reply that calls tools: name, arguments, name, arguments, ...
func step(calls ...string) *schema.Message {
	var all []schema.ToolCall
	for i := 0; i < len(calls); i += 2 {
		index := i / 2
		all = append(all, schema.ToolCall{Index: &index, ID: fmt.Sprintf("call-%d", index), Type: "function", Function: schema.FunctionCall{Name: calls[i], Arguments: calls[i+1]}})
	}
	return schema.AssistantMessage("", all)
}

// A way to execute a model with the tools: it returns the last message, or what the run ended with.
type way func(t *testing.T, ctx context.Context, s *scene, m *scriptedModel) (string, error)

// ways are those in which Eino executes tools.
func ways() map[string]way {
	return map[string]way{
		"agent": func(t *testing.T, ctx context.Context, s *scene, m *scriptedModel) (string, error) {
			return runAgent(t, ctx, s, m, false)
		},
		"streaming agent": func(t *testing.T, ctx context.Context, s *scene, m *scriptedModel) (string, error) {
			return runAgent(t, ctx, s, m, true)
		},
		"graph": func(t *testing.T, ctx context.Context, s *scene, m *scriptedModel) (string, error) {
			message, err := newGraph(t, ctx, s, m).Invoke(ctx, []*schema.Message{schema.UserMessage("go")})
			if err != nil {
				return "", err
			}
			return message.Content, nil
		},
		"streamed graph": func(t *testing.T, ctx context.Context, s *scene, m *scriptedModel) (string, error) {
			stream, err := newGraph(t, ctx, s, m).Stream(ctx, []*schema.Message{schema.UserMessage("go")})
			if err != nil {
				return "", err
			}
			message, err := schema.ConcatMessageStream(stream)
			if err != nil {
				return "", err
			}
			return message.Content, nil
		},
	}
}

func (s *scene) toolsConfig(t *testing.T) compose.ToolsNodeConfig {
	t.Helper()
	all, err := New(s.manager)
	require.NoError(t, err)
	return compose.ToolsNodeConfig{Tools: all}
}

func runAgent(t *testing.T, ctx context.Context, s *scene, m *scriptedModel, streaming bool) (string, error) {
	t.Helper()
	agent, err := adk.NewChatModelAgent(ctx, &adk.ChatModelAgentConfig{
		Name: "coder", Description: "edits files", Model: m, ToolsConfig: adk.ToolsConfig{ToolsNodeConfig: s.toolsConfig(t)},
	})
	require.NoError(t, err)
	events := adk.NewRunner(ctx, adk.RunnerConfig{Agent: agent, EnableStreaming: streaming}).Query(ctx, "go")
	last := ""
	for {
		event, ok := events.Next()
		if !ok {
			return last, nil
		}
		if event.Err != nil {
			err = event.Err
			for ok { // to its end, so that nothing of it is left behind
				_, ok = events.Next()
			}
			return "", err
		}
		if event.Output == nil || event.Output.MessageOutput == nil {
			continue
		}
		message, err := event.Output.MessageOutput.GetMessage()
		if err != nil {
			for ok {
				_, ok = events.Next()
			}
			return "", err
		}
		last = message.Content
	}
}

// newGraph is a model, its tools, and the model again until it calls none.
func newGraph(t *testing.T, ctx context.Context, s *scene, m *scriptedModel) compose.Runnable[[]*schema.Message, *schema.Message] {
	t.Helper()
	config := s.toolsConfig(t)
	node, err := compose.NewToolNode(ctx, &config)
	require.NoError(t, err)
	g := compose.NewGraph[[]*schema.Message, *schema.Message]()
	require.NoError(t, g.AddChatModelNode("model", m))
	require.NoError(t, g.AddToolsNode("tools", node))
	require.NoError(t, g.AddEdge(compose.START, "model"))
	require.NoError(t, g.AddEdge("tools", "model"))
	require.NoError(t, g.AddBranch("model", compose.NewGraphBranch(func(_ context.Context, message *schema.Message) (string, error) {
		if len(message.ToolCalls) > 0 {
			return "tools", nil
		}
		return compose.END, nil
	}, map[string]bool{"tools": true, compose.END: true})))
	runnable, err := g.Compile(ctx)
	require.NoError(t, err)
	return runnable
}

// proves T4 and C61: in a real run what goes wrong is four results with text, and the run ends normally.
func TestAgent_T4_C61_ErrorsAreResults(t *testing.T) {
	refuseEvil := func(_ context.Context, _, url string) error {
		if strings.Contains(url, "/evil/") {
			return errors.New("not on the list")
		}
		return nil
	}
	for name, execute := range ways() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t, workspaces.Options{AllowRepo: refuseEvil, AllowFileRepositories: true}, nil)
			disposed := s.create(t, "file://"+gitRepository(t))
			s.call(t, DisposeWorkspace)
			s.create(t, "")
			s.put(t, "f", "alpha\n")
			m := &scriptedModel{replies: []*schema.Message{
				step(ReadFile, `{"path":"missing"}`, EditFile, `{"path":"f","old_string":"beta","new_string":"x"}`, Bash, args{"command", "true", "workspace", disposed}.String(), CreateWorkspace, `{"repo":"evil/x"}`),
				step(Bash, `{"command":"echo hi; exit 3"}`),
				schema.AssistantMessage("done", nil),
			}}
			var mu sync.Mutex
			var reported []error
			ctx := workspaces.ContextWithToolErrorReporter(s.ctx, func(err error) {
				mu.Lock()
				defer mu.Unlock()
				reported = append(reported, err)
			})
			last, err := execute(t, ctx, s, m)
			require.NoError(t, err)
			require.Equal(t, "done", last)
			require.Len(t, m.seen, 3)
			m.seen = m.seen[:2]
			results := m.results()
			require.Len(t, results, 4)
			for tool, want := range map[string]string{
				ReadFile: `"missing": file does not exist`, EditFile: "old_string is not in the file; nothing was changed",
				Bash: "this run has no workspace", CreateWorkspace: "repository https://github.com/evil/x is not allowed: not on the list",
			} {
				require.True(t, strings.HasPrefix(results[tool], ErrorPrefix), results[tool])
				require.Contains(t, results[tool], want)
			}
			require.Len(t, reported, 4)
		})
	}
}

// proves T4 and C61: a run that is cancelled during bash ends with that, not with a result.
func TestAgent_T4_C61_Cancelled(t *testing.T) {
	for name, execute := range ways() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			running := make(chan struct{})
			s := newScene(t, workspaces.Options{}, changeExec(func(ctx context.Context, command workspaces.Command, real execFunc) (workspaces.Result, error) {
				close(running)
				return real(ctx, command)
			}))
			s.create(t, "")
			m := &scriptedModel{replies: []*schema.Message{step(Bash, `{"command":"echo hi; exec sleep 600"}`), schema.AssistantMessage("done", nil)}}
			ctx, cancel := context.WithCancel(s.ctx)
			go func() { <-running; cancel() }()
			last, err := execute(t, ctx, s, m)
			require.ErrorIs(t, err, context.Canceled)
			require.Empty(t, last)
			require.Len(t, m.seen, 1, "the model is not asked again")
		})
	}
}

// proves T4 and C61: a panic in a provider is a result of the tool.
func TestAgent_T4_C61_Panic(t *testing.T) {
	for name, execute := range ways() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t, workspaces.Options{}, func(p workspaces.Provider) workspaces.Provider {
				return &changedProvider{Provider: p,
					exec: func(context.Context, workspaces.Command, execFunc) (workspaces.Result, error) { panic("exec") },
					read: func() error { panic("read") },
				}
			})
			s.create(t, "")
			m := &scriptedModel{replies: []*schema.Message{
				step(Bash, `{"command":"true"}`, ReadFile, `{"path":"f"}`, EditFile, `{"path":"f","old_string":"a","new_string":"b"}`),
				schema.AssistantMessage("done", nil),
			}}
			last, err := execute(t, s.ctx, s, m)
			require.NoError(t, err)
			require.Equal(t, "done", last)
			results := m.results()
			require.Len(t, results, 3)
			for name, text := range results {
				require.Contains(t, text, "Error: panic in the provider: ", name)
			}
		})
	}
}

// proves T5, T10 and C63: what models write as arguments, and output of every kind, through Eino's own nodes.
func TestAgent_T5_T10_C63_Arguments(t *testing.T) {
	for name, execute := range ways() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t, workspaces.Options{}, nil)
			m := &scriptedModel{replies: []*schema.Message{
				step(CreateWorkspace, ``),
				step(WriteFile, `{"path":"f","content":""}`),
				step(WriteFile, `{"path":"g","content":"1\n2\n3\n4\n"}`),
				step(ReadFile, `{"path":"g","start_line":"2","end_line":3.0}`, ListFiles, ``, GitDiff, `null`, Bash, `{"command":"true"}`),
				step(Bash, `{"command":"head -c 200000 /dev/zero | tr '\\0' y"}`, Grep, `{}`, ReadFile, `{"path":"f","startLine":1}`),
				schema.AssistantMessage("done", nil),
			}}
			last, err := execute(t, s.ctx, s, m)
			require.NoError(t, err)
			require.Equal(t, "done", last)
			results := m.results()
			require.Contains(t, results[CreateWorkspace], `"repo":null`)
			require.Equal(t, "f\ng", results[ListFiles])
			require.Contains(t, results[GitDiff], "+++ b/g\n")
			require.Contains(t, results[Bash], "[the output has 200000 bytes")
			require.Contains(t, results[Grep], "required field pattern is missing")
			require.Contains(t, results[ReadFile], `unknown field "startLine"`)
			m.seen = m.seen[:len(m.seen)-1]
			results = m.results()
			require.Equal(t, "2\t2\n3\t3\n[lines 2-3 of 4]", results[ReadFile])
			require.Equal(t, "[bash: exit code 0]", results[Bash], "no output is a chunk all the same")
		})
	}
}

// proves T6 and C09: Eino executes the calls of one step in parallel, and all of them count.
func TestAgent_T6_C09_OneStep(t *testing.T) {
	s := newRoom(t)
	s.put(t, "n.txt", "a\nb\nc\nd\n")
	m := &scriptedModel{replies: []*schema.Message{
		step(Bash, `{"command":"ln -s n.txt link"}`),
		step(EditFile, `{"path":"n.txt","old_string":"a","new_string":"A"}`, EditFile, `{"path":"./n.txt","old_string":"b","new_string":"B"}`,
			EditFile, `{"path":"/workspace/n.txt","old_string":"c","new_string":"C"}`, EditFile, `{"path":"link","old_string":"d","new_string":"D"}`),
		schema.AssistantMessage("done", nil),
	}}
	_, err := runAgent(t, s.ctx, s, m, true)
	require.NoError(t, err)
	require.Equal(t, "A\nB\nC\nD\n", s.file(t, "n.txt"))
}

// An asking tool interrupts the first time, as an approval does.
type asking struct{ tool.InvokableTool }

func (a asking) InvokableRun(ctx context.Context, arguments string, options ...tool.Option) (string, error) {
	return answer(ctx, Bash, func() (string, error) {
		if interrupted, _, _ := tool.GetInterruptState[string](ctx); !interrupted {
			return "", tool.StatefulInterrupt(ctx, "approve?", "asked")
		}
		return a.InvokableTool.InvokableRun(ctx, arguments, options...)
	})
}

type checkpoints struct{ sync.Map }

func (c *checkpoints) Set(_ context.Context, id string, data []byte) error {
	c.Store(id, data)
	return nil
}

func (c *checkpoints) Get(_ context.Context, id string) ([]byte, bool, error) {
	data, ok := c.Load(id)
	if !ok {
		return nil, false, nil
	}
	return data.([]byte), true, nil
}

// proves T4: Eino's interrupt passes through a tool unchanged: the run is interrupted, and can be resumed.
func TestAgent_T4_Interrupt(t *testing.T) {
	s := newRoom(t)
	m := &scriptedModel{replies: []*schema.Message{step(Bash, `{"command":"echo hi"}`), schema.AssistantMessage("done", nil)}}
	agent, err := adk.NewChatModelAgent(s.ctx, &adk.ChatModelAgentConfig{
		Name: "coder", Description: "edits files", Model: m,
		ToolsConfig: adk.ToolsConfig{ToolsNodeConfig: compose.ToolsNodeConfig{Tools: []tool.BaseTool{asking{s.tools[Bash]}}}},
	})
	require.NoError(t, err)
	runner := adk.NewRunner(s.ctx, adk.RunnerConfig{Agent: agent, CheckPointStore: new(checkpoints)})
	follow := func(events *adk.AsyncIterator[*adk.AgentEvent]) (interrupted bool, last string) {
		for {
			event, ok := events.Next()
			if !ok {
				return interrupted, last
			}
			require.NoError(t, event.Err)
			if event.Action != nil && event.Action.Interrupted != nil {
				interrupted = true
			}
			if event.Output != nil && event.Output.MessageOutput != nil {
				last = event.Output.MessageOutput.Message.Content
			}
		}
	}
	interrupted, _ := follow(runner.Query(s.ctx, "go", adk.WithCheckPointID("1")))
	require.True(t, interrupted)
	events, err := runner.Resume(s.ctx, "1")
	require.NoError(t, err)
	interrupted, last := follow(events)
	require.False(t, interrupted)
	require.Equal(t, "done", last)
	require.Equal(t, "hi\n[bash: exit code 0]", m.results()[Bash])
}
