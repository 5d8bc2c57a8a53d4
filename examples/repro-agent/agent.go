package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/cloudwego/eino-ext/components/model/openai"
	"github.com/cloudwego/eino/adk"
	"github.com/cloudwego/eino/callbacks"
	"github.com/cloudwego/eino/components/model"
	"github.com/cloudwego/eino/compose"
	"github.com/cloudwego/eino/schema"

	"github.com/carrel-dev/carrel/lifecycle"
	"github.com/carrel-dev/carrel/tools"
	"github.com/carrel-dev/carrel/workspaces"
)

const instruction = `You reproduce and fix reported bugs. Work in this order and do not skip a step:
1. Check the repository out with create_workspace, exactly as it is named.
2. Find the code the report is about: list_files, grep, read_file.
3. Write a test that shows the bug, in the style of the tests that are there.
4. Run it with bash and see it fail for the reason in the report. If it passes, the test is wrong: mend it.
5. Fix the cause, with the smallest change that is right.
6. Run all tests again and see them pass.
7. Look at git_diff: nothing but the test and the fix may be in it.
8. Answer in a few sentences: the cause, the fix, and what the test printed before and after.
If you cannot reproduce the bug, say so, and say what you tried.`

// A modelMaker returns a model and what it is called.
type modelMaker func(ctx context.Context, c config) (model.ToolCallingChatModel, string, error)

// newModel makes the model that the environment names, or the scripted one.
func newModel(ctx context.Context, c config) (model.ToolCallingChatModel, string, error) {
	if c.apiKey == "" {
		return newScriptedModel(c.repository), "scripted (no OPENAI_API_KEY): it plays one session, on what the tools really return", nil
	}
	name := c.model
	if name == "" {
		name = "gpt-5"
	}
	m, err := openai.NewChatModel(ctx, &openai.ChatModelConfig{APIKey: c.apiKey, BaseURL: c.baseURL, Model: name})
	return m, name, err
}

// setup is what an agent is made of.
type setup struct {
	place
	model    model.ToolCallingChatModel
	observer workspaces.Observer // nil: nobody observes
	tracer   callbacks.Handler   // nil: no spans of Eino's components
}

// reproduce wires the agent and runs it once.
func reproduce(ctx context.Context, c config, s setup, out io.Writer) (err error) {
	var diff bytes.Buffer
	print := &printer{out: out}
	manager, err := workspaces.NewManager(s.provider, workspaces.Options{
		Image: c.image,
		// The bundled repository is a directory of this host; nothing else may be checked out.
		AllowFileRepositories: strings.HasPrefix(c.repository, "file:"),
		AllowRepo: func(_ context.Context, _, url string) error {
			if wanted, err := workspaces.NormalizeRepository(c.repository, true); err != nil || url != wanted {
				return fmt.Errorf("this agent works on %s", c.repository)
			}
			return nil
		},
		// The workspace goes when the run ends. This is the last moment to take something out of it.
		BeforeRelease: func(ctx context.Context, _ string, _ workspaces.Outcome, all []workspaces.Workspace) {
			for _, w := range all {
				if err := workspaces.Diff(ctx, w, &diff); err != nil {
					print.line("the diff could not be taken: %v", err)
				}
			}
		},
		HostFetch: s.hostFetch,
		OnError:   func(err error) { print.line("in the background: %v", err) },
		Observer:  s.observer,
	})
	if err != nil {
		return err
	}
	hook := lifecycle.New(manager)
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), workspaces.CloseTimeout)
		defer cancel()
		err = errors.Join(err, hook.Drain(closing), manager.Close(closing))
	}()

	all, err := tools.New(manager)
	if err != nil {
		return err
	}
	agent, err := adk.NewChatModelAgent(ctx, &adk.ChatModelAgentConfig{
		Name:          "repro-agent",
		Description:   "Reproduces and fixes a reported bug.",
		Instruction:   instruction,
		Model:         s.model,
		ToolsConfig:   adk.ToolsConfig{ToolsNodeConfig: compose.ToolsNodeConfig{Tools: all}},
		MaxIterations: 60,
	})
	if err != nil {
		return err
	}
	handlers := []callbacks.Handler{hook, print.handler()}
	if s.tracer != nil {
		handlers = append([]callbacks.Handler{s.tracer}, handlers...)
	}
	runner := adk.NewRunner(ctx, adk.RunnerConfig{Agent: agent, EnableStreaming: c.stream})
	query := fmt.Sprintf("Repository: %s\nRef: %s\n\nBug report:\n%s", c.repository, orHead(c.ref), c.report)
	ctx = lifecycle.WithRunID(ctx, "")
	answer, err := print.events(lifecycle.Events(ctx, runner.Query(ctx, query, adk.WithCallbacks(handlers...))))
	if err != nil {
		return err
	}
	print.line("\nanswer:\n%s\n\ndiff:\n%s", answer, strings.TrimRight(diff.String(), "\n"))
	return ctx.Err()
}

func orHead(ref string) string {
	if ref == "" {
		return "HEAD"
	}
	return ref
}

// A printer shows each step as it happens. It is safe for concurrent use: tools of one turn run in parallel.
type printer struct {
	mu  sync.Mutex
	out io.Writer
}

func (p *printer) line(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Fprintf(p.out, format+"\n", args...)
}

// events reads a run to its end and returns the model's last words.
func (p *printer) events(events *adk.AsyncIterator[*adk.AgentEvent]) (answer string, err error) {
	for {
		event, ok := events.Next()
		if !ok {
			return answer, err
		}
		if event.Err != nil {
			err = event.Err
			continue
		}
		if event.Output == nil || event.Output.MessageOutput == nil {
			continue
		}
		message, failed := event.Output.MessageOutput.GetMessage()
		if failed != nil {
			err = failed
			continue
		}
		if message.Role != schema.Assistant {
			continue
		}
		answer = message.Content
	}
}

type startedKey struct{}

// handler prints what the model says before it calls tools, and the tools: the call when it starts; the first lines of
// the result and the time when it ends.
func (p *printer) handler() callbacks.Handler {
	return stepCallbacks(
		func(message *schema.Message) {
			if message.Content != "" && len(message.ToolCalls) > 0 {
				p.line("\n%s", message.Content)
			}
		},
		func(ctx context.Context, name, arguments string) context.Context {
			p.line("  > %s %s", name, shorten(arguments, 160))
			return context.WithValue(ctx, startedKey{}, time.Now())
		},
		func(ctx context.Context, name, result string) {
			took := time.Duration(0)
			if started, ok := ctx.Value(startedKey{}).(time.Time); ok {
				took = time.Since(started)
			}
			p.line("%s    (%s, %s)", firstLines(result, 14), name, took.Round(time.Millisecond))
		})
}

func shorten(text string, most int) string {
	if runes := []rune(text); len(runes) > most {
		return string(runes[:most]) + "..."
	}
	return text
}

func firstLines(text string, most int) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	rest := len(lines) - most
	// The last line says how a command ended: it is always shown.
	if rest > 1 {
		lines = append(append(lines[:most-1:most-1], fmt.Sprintf("... %d more lines ...", rest)), lines[len(lines)-1])
	}
	var b strings.Builder
	for _, line := range lines {
		fmt.Fprintf(&b, "    | %s\n", shorten(line, 160))
	}
	return b.String()
}
