package tools

import (
	"context"
	_ "embed"
	"fmt"
	"strings"
	"time"

	"github.com/cloudwego/eino/components/tool"
	"github.com/cloudwego/eino/schema"

	"github.com/carrel-dev/carrel/workspaces"
)

//go:embed bash.md
var bashText string

type bashArguments struct {
	Command        string `json:"command" jsonschema:"minLength=1,maxLength=1048576" jsonschema_description:"Shell command or script; several lines and here-documents work."`
	TimeoutSeconds int    `json:"timeout_seconds,omitempty" jsonschema:"minimum=1,maximum=1800" jsonschema_description:"Stop it after so many seconds; 300 when left out."`
	target
}

// A shell is the tool bash.
type shell struct {
	declaration
}

func newShell() (tool.InvokableTool, error) {
	d, err := declare[bashArguments](Bash, bashText)
	if err != nil {
		return nil, err
	}
	return &shell{d}, nil
}

// InvokableRun runs the command and returns its output and, last, its exit code.
func (s *shell) InvokableRun(ctx context.Context, argumentsInJSON string, _ ...tool.Option) (string, error) {
	return answer(ctx, Bash, func() (string, error) {
		r, arguments, err := s.enter(ctx, argumentsInJSON)
		if err != nil {
			return "", err
		}
		out := newOutput(r.root)
		trailer, err := run(ctx, r, arguments, out)
		return out.String() + trailer, err
	})
}

// StreamableRun streams what InvokableRun returns: the beginning of the output while the command
// runs, all the rest at the end. Neither a slow reader nor one that never closes the stream
// holds anything up.
func (s *shell) StreamableRun(ctx context.Context, argumentsInJSON string, _ ...tool.Option) (*schema.StreamReader[string], error) {
	var r room
	var arguments bashArguments
	refused, err := answer(ctx, Bash, func() (string, error) {
		var err error
		r, arguments, err = s.enter(ctx, argumentsInJSON)
		return "", err
	})
	if err != nil {
		return nil, err
	}
	if refused != "" {
		return schema.StreamReaderFromArray([]string{refused}), nil
	}
	reader, writer := schema.Pipe[string](streamChunks)
	go stream(ctx, r, arguments, writer)
	return reader, nil
}

func (s *shell) enter(ctx context.Context, argumentsInJSON string) (room, bashArguments, error) {
	var arguments bashArguments
	inRun, err := s.start(ctx, argumentsInJSON, &arguments)
	if err != nil {
		return room{}, arguments, err
	}
	switch {
	case strings.TrimSpace(arguments.Command) == "":
		return room{}, arguments, refuse("command is empty")
	case strings.ContainsRune(arguments.Command, 0):
		return room{}, arguments, refuse("command contains a NUL character, which no shell command can")
	}
	r, err := enter(ctx, inRun, arguments.Workspace)
	return r, arguments, err
}

// run runs the command and returns what stands below its output.
func run(ctx context.Context, r room, a bashArguments, out *output) (trailer string, err error) {
	defer func() {
		if p := recover(); p != nil {
			out.close()
			trailer, err = out.below(panicked(ctx, Bash, p)), nil
		}
	}()
	command := shellCommand(a.Command)
	command.Timeout = workspaces.ExecTimeout
	if a.TimeoutSeconds > 0 {
		command.Timeout = time.Duration(a.TimeoutSeconds) * time.Second
	}
	command.Stdout = out
	result, err := r.Exec(ctx, command)
	out.close()
	if err != nil {
		trailer, err = settle(ctx, r.locate(err))
		return out.below(trailer), err
	}
	return out.below(ending(result, command.Timeout, r.root, out)), nil
}

// ending says how a command ended, its exit code last.
func ending(result workspaces.Result, timeout time.Duration, root string, out *output) string {
	var notes []string
	if out.Truncated() {
		notes = append(notes, fmt.Sprintf("[the output has %d bytes, its middle is left out. To see all of it, send it to a file (COMMAND > out.txt 2>&1) and read that in parts]", out.Bytes()))
	}
	if result.OOMKilled {
		notes = append(notes, "[out of memory: the kernel killed a process of this workspace. Use less memory: fewer parallel jobs, smaller inputs]")
	}
	if result.TimedOut {
		after := fmt.Sprintf("after %d seconds", int(timeout.Seconds()))
		if result.Duration < timeout-time.Second {
			after = "at the end of the workspace's lifetime"
		}
		notes = append(notes, fmt.Sprintf("[timed out %s; it was stopped with everything it had started. Give a longer timeout_seconds (at most %d), or run it in the background: COMMAND > out.txt 2>&1 &]",
			after, int(workspaces.ExecTimeoutMax.Seconds())))
	}
	shell := out.shell
	if shell == "" {
		shell = "shell"
		if !result.TimedOut {
			notes = append(notes, ErrorPrefix+"no shell ran the command. "+clip(sentence(showRoot(result.Stderr, root))))
		}
	}
	return strings.Join(append(notes, fmt.Sprintf("[%s: exit code %d]", shell, result.ExitCode)), "\n")
}
