package tools

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/carrel-dev/carrel/workspaces"
)

// target is the argument that all tools but create_workspace share.
type target struct {
	Workspace string `json:"workspace,omitempty" jsonschema:"maxLength=128" jsonschema_description:"Workspace id. Leave out when the run has one workspace."`
}

func (t target) workspaceID() string { return t.Workspace }

// A room is the workspace of one call, as the model sees it.
type room struct {
	workspaces.Workspace
	root string // its directory on the host; empty where it is none of the host's
}

// inWorkspace makes a handler of one that works in a workspace.
func inWorkspace[A interface{ workspaceID() string }](handle func(context.Context, room, A) (string, error)) func(context.Context, *workspaces.Run, A) (string, error) {
	return func(ctx context.Context, run *workspaces.Run, arguments A) (string, error) {
		r, err := enter(ctx, run, arguments.workspaceID())
		if err != nil {
			return "", err
		}
		text, err := handle(ctx, r, arguments)
		if err != nil {
			err = r.locate(err)
		}
		return text, err
	}
}

// enter finds the workspace that a call means.
func enter(ctx context.Context, run *workspaces.Run, id string) (room, error) {
	ws, err := run.Get(ctx, id)
	if err != nil {
		return room{}, choose(run, id, err)
	}
	r := room{Workspace: ws}
	if dir, ok := workspaces.As[workspaces.HostDir](ws); ok {
		r.root = strings.TrimSuffix(dir.HostDir(), "/")
	}
	return r, nil
}

// choose adds what the run holds to the error of a workspace that was not found.
func choose(run *workspaces.Run, id string, err error) error {
	if !errors.Is(err, workspaces.ErrNotFound) && !errors.Is(err, workspaces.ErrInvalidInput) {
		return err
	}
	held := run.Workspaces()
	switch {
	case len(held) == 0 && id == "":
		return refuse("this run has no workspace. Call create_workspace first")
	case len(held) == 0:
		return refuse("this run has no workspace %s, and no other. Call create_workspace first", quote(id))
	}
	var list []string
	for _, ws := range held {
		list = append(list, describe(ws))
	}
	if id == "" {
		return refuse("this run has several workspaces. Say which one in workspace: %s", strings.Join(list, ", "))
	}
	return refuse("this run has no workspace %s. It has: %s", quote(id), strings.Join(list, ", "))
}

// describe names a workspace so that the model recognises it.
func describe(ws workspaces.Workspace) string {
	info := ws.Info()
	switch {
	case info.Repository == "":
		return fmt.Sprintf("%s (no repository)", ws.ID())
	case info.Ref == "":
		return fmt.Sprintf("%s (%s)", ws.ID(), info.Repository)
	}
	return fmt.Sprintf("%s (%s at %s)", ws.ID(), info.Repository, info.Ref)
}

// path is a path as the model gave it; the real directory is as good as /workspace.
func (r room) path(path string) string {
	if r.root != "" && (path == r.root || strings.HasPrefix(path, r.root+"/")) {
		return workspaces.Root + path[len(r.root):]
	}
	return path
}

// locate notes where an error happened, so that its text can show /workspace.
func (r room) locate(err error) error {
	if r.root == "" {
		return err
	}
	return &located{err, r.root}
}
