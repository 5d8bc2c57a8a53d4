package lifecycle_test

import (
	"context"
	"fmt"
	"log"

	"github.com/cloudwego/eino/adk"
	"github.com/cloudwego/eino/components/model"
	"github.com/cloudwego/eino/compose"

	"github.com/carrel-dev/carrel/lifecycle"
	"github.com/carrel-dev/carrel/providers/local"
	"github.com/carrel-dev/carrel/tools"
	"github.com/carrel-dev/carrel/workspaces"
)

// An agent that gets the tools, and whose workspaces are gone when its run has ended.
func Example() {
	ctx := context.Background()
	provider, err := local.New(local.Options{})
	check(err)
	manager, err := workspaces.NewManager(provider, workspaces.Options{})
	check(err)
	defer manager.Close(ctx)
	hook := lifecycle.New(manager)
	all, err := tools.New(manager)
	check(err)

	agent, err := adk.NewChatModelAgent(ctx, &adk.ChatModelAgentConfig{
		Name: "coder", Description: "Runs code.", Instruction: "Work in a workspace.", Model: chatModel(),
		ToolsConfig: adk.ToolsConfig{ToolsNodeConfig: compose.ToolsNodeConfig{Tools: all}},
	})
	check(err)
	runner := adk.NewRunner(ctx, adk.RunnerConfig{Agent: agent})
	ctx = lifecycle.WithRunID(ctx, "run-1")
	events := lifecycle.Events(ctx, runner.Query(ctx, "What is 6 times 7?", adk.WithCallbacks(hook)))
	for event, ok := events.Next(); ok; event, ok = events.Next() {
		check(event.Err)
		message, err := event.Output.MessageOutput.GetMessage()
		check(err)
		if message.ToolName != tools.CreateWorkspace && message.Content != "" {
			fmt.Println(message.Content)
		}
	}
	fmt.Println("workspaces left:", manager.Live())
	// Output:
	// 42
	// [bash: exit code 0]
	// It is 42.
	// workspaces left: 0
}

// chatModel plays a model that makes a workspace, runs a command in it, and answers.
func chatModel() model.ToolCallingChatModel {
	create, bash, last := call(tools.CreateWorkspace), call(tools.Bash), answer()
	create.ToolCalls[0].Function.Arguments = `{}`
	bash.ToolCalls[0].Function.Arguments = `{"command": "echo $((6 * 7))"}`
	last.Content = "It is 42."
	return script(create, bash, last)
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
