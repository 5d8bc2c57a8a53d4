package tools

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cloudwego/eino/components/tool"

	"github.com/carrel-dev/carrel/workspaces"
)

// The names of the tools, as the model calls them.
const (
	CreateWorkspace  = "create_workspace"
	DisposeWorkspace = "dispose_workspace"
	ReadFile         = "read_file"
	WriteFile        = "write_file"
	EditFile         = "edit_file"
	Grep             = "grep"
	ListFiles        = "list_files"
	Bash             = "bash"
	GitDiff          = "git_diff"
)

// Names returns the names of all tools, in the order in which New returns them.
func Names() []string {
	return []string{CreateWorkspace, DisposeWorkspace, ReadFile, WriteFile, EditFile, Grep, ListFiles, Bash, GitDiff}
}

// New returns the tools of the given names, in that order, and without names all nine. Each is a
// tool.InvokableTool, bash a tool.StreamableTool besides. They are safe for concurrent use, hold
// nothing to close, and serve every run of the manager. It fails on a nil manager and on
// names it does not know or that are given twice.
func New(manager *workspaces.Manager, names ...string) ([]tool.BaseTool, error) {
	if manager == nil {
		return nil, fmt.Errorf("%w: tools without a manager", workspaces.ErrInvalidConfig)
	}
	return build(manager.AllowsImages(), names)
}

// ReadOnly returns the tools that change nothing: read_file, grep, list_files and git_diff. They
// suit an agent that looks at a workspace which another agent of the same run made; one
// that is to look at a repository of its own needs create_workspace as well.
func ReadOnly(manager *workspaces.Manager) ([]tool.BaseTool, error) {
	return New(manager, ReadFile, Grep, ListFiles, GitDiff)
}

func build(images bool, names []string) ([]tool.BaseTool, error) {
	if len(names) == 0 {
		names = Names()
	}
	tools := make([]tool.BaseTool, 0, len(names))
	var failures []error
	for i, name := range names {
		if slices.Contains(names[:i], name) {
			return nil, fmt.Errorf("%w: tool %q is named twice", workspaces.ErrInvalidConfig, name)
		}
		t, err := newTool(name, images)
		tools, failures = append(tools, t), append(failures, err)
	}
	if err := errors.Join(failures...); err != nil {
		return nil, err
	}
	return tools, nil
}

func newTool(name string, images bool) (tool.BaseTool, error) {
	switch name {
	case CreateWorkspace:
		if images {
			return newFunction(name, createText, create)
		}
		return newFunction(name, createText, create, "image")
	case DisposeWorkspace:
		return newFunction(name, disposeText, dispose)
	case ReadFile:
		return newFunction(name, readText, inWorkspace(readFile))
	case WriteFile:
		return newFunction(name, writeText, inWorkspace(writeFile))
	case EditFile:
		return newFunction(name, editText, inWorkspace(editFile))
	case Grep:
		return newFunction(name, grepText, inWorkspace(grep))
	case ListFiles:
		return newFunction(name, listText, inWorkspace(listFiles))
	case Bash:
		return newShell()
	case GitDiff:
		return newFunction(name, diffText, inWorkspace(gitDiff))
	}
	return nil, fmt.Errorf("%w: no tool %q; there are %s", workspaces.ErrInvalidConfig, name, strings.Join(Names(), ", "))
}
