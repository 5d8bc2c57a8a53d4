package tools

import (
	"context"

	"github.com/carrel-dev/carrel/workspaces"
)

// A changedProvider makes workspaces whose commands and files a test interferes with.
type changedProvider struct {
	workspaces.Provider
	exec execChange // nil: nothing is changed
	read func() error
}

type execFunc func(ctx context.Context, command workspaces.Command) (workspaces.Result, error)

// An execChange runs a command in another way than real does.
type execChange func(ctx context.Context, command workspaces.Command, real execFunc) (workspaces.Result, error)

// changeExec changes how the commands of bash run; all others stay.
func changeExec(change execChange) func(workspaces.Provider) workspaces.Provider {
	return func(p workspaces.Provider) workspaces.Provider {
		return &changedProvider{Provider: p, exec: change}
	}
}

func (p *changedProvider) Unwrap() workspaces.Provider { return p.Provider }

func (p *changedProvider) Create(ctx context.Context, options workspaces.CreateOptions) (workspaces.Created, error) {
	created, err := p.Provider.Create(ctx, options)
	if err == nil {
		created.Workspace = &changedWorkspace{created.Workspace, p}
	}
	return created, err
}

type changedWorkspace struct {
	workspaces.Workspace
	provider *changedProvider
}

func (w *changedWorkspace) Unwrap() workspaces.Workspace { return w.Workspace }

func (w *changedWorkspace) Exec(ctx context.Context, command workspaces.Command) (workspaces.Result, error) {
	isBash := len(command.Args) > 2 && (command.Args[2] == launch || command.Args[2] == launchFile)
	if w.provider.exec == nil || !isBash {
		return w.Workspace.Exec(ctx, command)
	}
	return w.provider.exec(ctx, command, w.Workspace.Exec)
}

func (w *changedWorkspace) ReadFile(ctx context.Context, path string) ([]byte, error) {
	if w.provider.read != nil {
		if err := w.provider.read(); err != nil {
			return nil, err
		}
	}
	return w.Workspace.ReadFile(ctx, path)
}
