package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/cloudwego/eino/components/model"
	"github.com/cloudwego/eino/schema"

	"github.com/carrel-dev/carrel/tools"
)

// A scriptedModel stands in for a language model where there is none: it plays one debugging session on the
// bundled repository. It is not a model, and says so; but nothing it says is made up. Each
// step looks at what the tools really returned, and it fails when that is not what the step
// needs: when the test does not fail before the fix, or still fails after it.
type scriptedModel struct {
	repository string
	steps      []step
}

// A step is one turn: it gets the results of the tools that the turn before called, in the order of the
// calls, and answers with the next calls, or with text at the end.
type step func(results []string) (*schema.Message, error)

func newScriptedModel(repository string) *scriptedModel {
	m := &scriptedModel{repository: repository}
	m.steps = []step{m.checkOut, m.look, m.read, m.write, m.reproduce, m.fix, m.verify, m.diff, m.answer}
	return m
}

// Generate plays the step that the conversation has come to. The conversation is its only state, so one model
// serves any number of runs.
func (m *scriptedModel) Generate(_ context.Context, input []*schema.Message, _ ...model.Option) (*schema.Message, error) {
	turn := 0
	var results []string
	for _, message := range input {
		switch message.Role {
		case schema.Assistant:
			turn++
			results = nil
		case schema.Tool:
			results = append(results, message.Content)
		}
	}
	if turn >= len(m.steps) {
		return nil, errors.New("scripted model: the conversation went on after its end")
	}
	message, err := m.steps[turn](results)
	if err != nil {
		return nil, fmt.Errorf("scripted model: %w", err)
	}
	return message, nil
}

// Stream is Generate in one chunk.
func (m *scriptedModel) Stream(ctx context.Context, input []*schema.Message, options ...model.Option) (*schema.StreamReader[*schema.Message], error) {
	message, err := m.Generate(ctx, input, options...)
	if err != nil {
		return nil, err
	}
	return schema.StreamReaderFromArray([]*schema.Message{message}), nil
}

// WithTools returns the model itself: it knows the tools it calls.
func (m *scriptedModel) WithTools([]*schema.ToolInfo) (model.ToolCallingChatModel, error) {
	return m, nil
}

type arguments map[string]any

// say is a message that calls tools: name, arguments, name, arguments.
func say(text string, calls ...any) *schema.Message {
	message := schema.AssistantMessage(text, nil)
	for i := 0; i < len(calls); i += 2 {
		data, err := json.Marshal(calls[i+1])
		if err != nil {
			panic(err) // strings only
		}
		message.ToolCalls = append(message.ToolCalls, schema.ToolCall{
			ID:       fmt.Sprintf("call-%s-%d", calls[i], i/2),
			Type:     "function",
			Function: schema.FunctionCall{Name: calls[i].(string), Arguments: string(data)},
		})
	}
	return message
}

// unexpected is a result that the script cannot go on with.
func unexpected(tool, want, got string) error {
	return fmt.Errorf("%s was to return %s, and returned:\n%s", tool, want, got)
}

func (m *scriptedModel) checkOut([]string) (*schema.Message, error) {
	return say("I check the repository out.", tools.CreateWorkspace, arguments{"repo": m.repository}), nil
}

func (m *scriptedModel) look(results []string) (*schema.Message, error) {
	var created struct{ Commit string }
	if err := json.Unmarshal([]byte(results[0]), &created); err != nil || len(created.Commit) < 40 {
		return nil, unexpected(tools.CreateWorkspace, "a workspace with a commit", results[0])
	}
	return say("I look what is there, and where lines are counted.",
		tools.ListFiles, arguments{},
		tools.Grep, arguments{"pattern": "count_lines", "glob": "*.sh"}), nil
}

var definition = regexp.MustCompile(`(?m)^([^:\s]+):\d+:count_lines\(\)`)

func (m *scriptedModel) read(results []string) (*schema.Message, error) {
	found := definition.FindStringSubmatch(results[1])
	if found == nil {
		return nil, unexpected(tools.Grep, "the definition of count_lines", results[1])
	}
	if !strings.Contains(results[0], found[1]) || !strings.Contains(results[0], "tests/run.sh") {
		return nil, unexpected(tools.ListFiles, found[1]+" and tests/run.sh", results[0])
	}
	return say("count_lines is in "+found[1]+". I read it, and a test to see how tests look here.",
		tools.ReadFile, arguments{"path": found[1]},
		tools.ReadFile, arguments{"path": "tests/lines.test.sh"}), nil
}

const (
	newTest = `. lib/count.sh
file=$(mktemp)
trap 'rm -f "$file"' EXIT
printf 'one\ntwo' > "$file"
got=$(count_lines "$file")
[ "$got" = 2 ] || { echo "count_lines without a final newline: got $got, want 2"; exit 1; }
`
	buggyLoop = "count_lines() {\n\tn=0\n\twhile IFS= read -r line; do"
	fixedLoop = "count_lines() {\n\tn=0\n\twhile IFS= read -r line || [ -n \"$line\" ]; do"
)

func (m *scriptedModel) write(results []string) (*schema.Message, error) {
	if !strings.Contains(results[0], "while IFS= read -r line; do") {
		return nil, unexpected(tools.ReadFile, "the loop that loses the last line", results[0])
	}
	return say("The loop of count_lines ends at the last newline: read fails on a line without one, though it has read it. "+
		"I write a test that says so.",
		tools.WriteFile, arguments{"path": "tests/no-final-newline.test.sh", "content": newTest}), nil
}

func (m *scriptedModel) reproduce([]string) (*schema.Message, error) {
	return say("I run it before I touch the code.", tools.Bash, arguments{"command": "sh tests/run.sh"}), nil
}

func (m *scriptedModel) fix(results []string) (*schema.Message, error) {
	if !strings.Contains(results[0], "FAIL  tests/no-final-newline.test.sh") || !strings.Contains(results[0], "got 1, want 2") {
		return nil, unexpected(tools.Bash, "the new test failing with: got 1, want 2", results[0])
	}
	return say("The test fails as reported: the bug is reproduced. Now the fix.",
		tools.EditFile, arguments{"path": "lib/count.sh", "old_string": buggyLoop, "new_string": fixedLoop}), nil
}

func (m *scriptedModel) verify([]string) (*schema.Message, error) {
	return say("I run the tests again.", tools.Bash, arguments{"command": "sh tests/run.sh"}), nil
}

func (m *scriptedModel) diff(results []string) (*schema.Message, error) {
	if !strings.Contains(results[0], "all tests passed") || !strings.Contains(results[0], "exit code 0]") {
		return nil, unexpected(tools.Bash, "all tests passing after the fix", results[0])
	}
	return say("They pass. I look at what I changed.", tools.GitDiff, arguments{}), nil
}

func (m *scriptedModel) answer(results []string) (*schema.Message, error) {
	for _, want := range []string{"tests/no-final-newline.test.sh", "lib/count.sh", `|| [ -n "$line" ]`} {
		if !strings.Contains(results[0], want) {
			return nil, unexpected(tools.GitDiff, "a diff with "+want, results[0])
		}
	}
	return schema.AssistantMessage("The bug is reproduced and fixed. `read` returns non-zero on a last line without a newline, "+
		"though it fills the variable; the loop of count_lines stopped there and lost the line. It now goes on while there is "+
		"something to count. tests/no-final-newline.test.sh failed before the change (got 1, want 2) and passes after it, "+
		"as do the other tests.", nil), nil
}
