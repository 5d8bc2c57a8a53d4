package carrel_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/cloudwego/eino/adk"
	"github.com/cloudwego/eino/components/model"
	"github.com/cloudwego/eino/compose"
	"github.com/cloudwego/eino/schema"
	"github.com/stretchr/testify/require"

	"github.com/carrel-dev/carrel/lifecycle"
	"github.com/carrel-dev/carrel/providers/local"
	"github.com/carrel-dev/carrel/tools"
	"github.com/carrel-dev/carrel/workspaces"
)

func runAgent(ctx context.Context, chatModel model.ToolCallingChatModel, result func(string)) (err error) {
	// snippet
	provider, err := local.New(local.Options{})
	if err != nil {
		return err
	}
	manager, err := workspaces.NewManager(provider, workspaces.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, manager.Close(ctx)) }()
	hook := lifecycle.New(manager)
	workspaceTools, err := tools.New(manager)
	if err != nil {
		return err
	}
	agent, err := adk.NewChatModelAgent(ctx, &adk.ChatModelAgentConfig{
		Name: "fixer", Description: "Fixes bugs.", Model: chatModel,
		ToolsConfig: adk.ToolsConfig{ToolsNodeConfig: compose.ToolsNodeConfig{Tools: workspaceTools}},
	})
	if err != nil {
		return err
	}
	runner := adk.NewRunner(ctx, adk.RunnerConfig{Agent: agent})
	ctx = lifecycle.WithRunID(ctx, "") // an id of your own, or none
	events := lifecycle.Events(ctx, runner.Query(ctx, "Fix the bug.", adk.WithCallbacks(hook)))
	// end
	for {
		event, ok := events.Next()
		if !ok {
			return err
		}
		if event.Err != nil {
			return event.Err
		}
		if message, _ := event.Output.MessageOutput.GetMessage(); message.Role == schema.Tool {
			result(message.Content)
		}
	}
}

// twoCalls is a model that makes a workspace, runs one command in it and is done.
type twoCalls struct{ turns int }

func (m *twoCalls) Generate(context.Context, []*schema.Message, ...model.Option) (*schema.Message, error) {
	calls := []schema.FunctionCall{{Name: tools.CreateWorkspace}, {Name: tools.Bash, Arguments: `{"command":"echo it runs"}`}}
	if m.turns++; m.turns > len(calls) {
		return schema.AssistantMessage("done", nil), nil
	}
	return schema.AssistantMessage("", []schema.ToolCall{{ID: "call", Function: calls[m.turns-1]}}), nil
}

func (m *twoCalls) Stream(ctx context.Context, input []*schema.Message, options ...model.Option) (*schema.StreamReader[*schema.Message], error) {
	message, err := m.Generate(ctx, input, options...)
	return schema.StreamReaderFromArray([]*schema.Message{message}), err
}

func (m *twoCalls) WithTools([]*schema.ToolInfo) (model.ToolCallingChatModel, error) { return m, nil }

// What the READMEs show compiles and runs.
func TestReadmeSnippet(t *testing.T) {
	var last string
	require.NoError(t, runAgent(t.Context(), &twoCalls{}, func(result string) { last = result }))
	require.Contains(t, last, "it runs\n")
	source, err := os.ReadFile("snippet_test.go")
	require.NoError(t, err)
	_, snippet, found := strings.Cut(string(source), "\t// snippet\n")
	require.True(t, found)
	snippet, _, found = strings.Cut(snippet, "\t// end\n")
	require.True(t, found)
	snippet = strings.ReplaceAll("\n"+snippet, "\n\t", "\n")[1:]
	for _, name := range []string{"README.md", "README_zh.md"} {
		page, err := os.ReadFile(name)
		require.NoError(t, err)
		require.Contains(t, string(page), "```go\n"+snippet+"```", "%s shows something else than snippet_test.go", name)
	}
}
