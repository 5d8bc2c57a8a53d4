package tools

import (
	"context"
	_ "embed"

	"github.com/carrel-dev/carrel/workspaces"
)

//go:embed dispose.md
var disposeText string

type disposeArguments struct {
	target
}

// disposed is the result of dispose_workspace.
type disposed struct {
	Workspace string `json:"workspace"`
	Disposed  bool   `json:"disposed"`
}

func dispose(ctx context.Context, run *workspaces.Run, a disposeArguments) (string, error) {
	id := a.Workspace
	if id == "" {
		ws, err := run.Get(ctx, "")
		if err != nil {
			return "", choose(run, id, err)
		}
		id = ws.ID()
	}
	if err := run.Dispose(ctx, id); err != nil {
		return "", choose(run, id, err)
	}
	return toJSON(disposed{id, true})
}
