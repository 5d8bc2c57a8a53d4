package tools

import (
	"context"
	"fmt"
	"strings"

	"github.com/cloudwego/eino/components/tool"
	"github.com/cloudwego/eino/schema"
	"github.com/eino-contrib/jsonschema"

	"github.com/carrel-dev/carrel/workspaces"
)

// A declaration is a tool as the model sees it.
type declaration struct {
	info   schema.ToolInfo
	schema *jsonschema.Schema
}

func declare[A any](name, text string, without ...string) (declaration, error) {
	s, err := parameters[A](without...)
	if err != nil {
		return declaration{}, fmt.Errorf("tool %s: %w", name, err)
	}
	return declaration{
		info:   schema.ToolInfo{Name: name, Desc: strings.TrimSpace(text), ParamsOneOf: schema.NewParamsOneOfByJSONSchema(s)},
		schema: s,
	}, nil
}

// Info returns the name, the text for the model and the parameters.
func (d *declaration) Info(context.Context) (*schema.ToolInfo, error) {
	info := d.info
	return &info, nil
}

// start checks what every call needs: a context that has not ended, a run and valid
// arguments.
func (d *declaration) start(ctx context.Context, arguments string, target any) (*workspaces.Run, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	run := workspaces.RunFromContext(ctx)
	if run == nil {
		return nil, refuse("this call belongs to no run, so there are no workspaces. The application has to install "+
			"carrel's lifecycle hook (lifecycle.New(manager) as a callback handler of the agent or graph) or to call "+
			"it with workspaces.ContextWithRun. Do not call %s again; say this to the user", d.info.Name)
	}
	return run, decode(arguments, d.schema, target)
}

// A function is a tool that answers with one text. A is the struct of its arguments.
type function[A any] struct {
	declaration
	handle func(ctx context.Context, run *workspaces.Run, arguments A) (string, error)
}

func newFunction[A any](name, text string, handle func(context.Context, *workspaces.Run, A) (string, error), without ...string) (tool.InvokableTool, error) {
	d, err := declare[A](name, text, without...)
	if err != nil {
		return nil, err
	}
	return &function[A]{d, handle}, nil
}

// InvokableRun does what the tool does. Failures are results; errors are only the end of ctx and
// Eino's interrupts.
func (f *function[A]) InvokableRun(ctx context.Context, argumentsInJSON string, _ ...tool.Option) (string, error) {
	return answer(ctx, f.info.Name, func() (string, error) {
		var arguments A
		run, err := f.start(ctx, argumentsInJSON, &arguments)
		if err != nil {
			return "", err
		}
		return f.handle(ctx, run, arguments)
	})
}

// answer calls a tool's work and makes a result of whatever goes wrong in it.
func answer(ctx context.Context, name string, work func() (string, error)) (result string, err error) {
	defer func() {
		if p := recover(); p != nil {
			result, err = panicked(ctx, name, p), nil
		}
	}()
	result, err = work()
	if err != nil {
		return settle(ctx, err)
	}
	return result, nil
}

// panicked is the result of a call in which something panicked.
func panicked(ctx context.Context, name string, p any) string {
	err := refuse("%s failed inside (panic: %v). What it did is unknown: look before you call it again", name, p)
	workspaces.ReportToolError(ctx, err)
	return ErrorPrefix + explain(err)
}
