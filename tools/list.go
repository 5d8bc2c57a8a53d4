package tools

import (
	"context"
	_ "embed"
	"fmt"
	"strings"

	"github.com/carrel-dev/carrel/workspaces"
)

//go:embed list.md
var listText string

const listMaxEntries = 1000

type listArguments struct {
	Path string `json:"path,omitempty" jsonschema:"minLength=1,maxLength=4096" jsonschema_description:"Directory to list. Leave out for everything."`
	Glob string `json:"glob,omitempty" jsonschema:"minLength=1,maxLength=1024" jsonschema_description:"Only files that match, such as *.go or src/**/*.ts."`
	target
}

func listFiles(ctx context.Context, r room, a listArguments) (string, error) {
	list, err := workspaces.ListFiles(ctx, r.Workspace, workspaces.ListOptions{Path: r.path(a.Path), Glob: a.Glob, Max: listMaxEntries})
	if err != nil {
		return "", err
	}
	if len(list.Entries) == 0 {
		if a.Path != "" || a.Glob != "" {
			return strings.TrimSuffix("No files match.\n"+ignoredHint, "\n"), nil
		}
		return "No files.", nil
	}
	var b strings.Builder
	for _, entry := range list.Entries {
		b.WriteString(strings.TrimSuffix(entry.Path, "/"))
		if entry.Repository {
			b.WriteString("/ [a git repository of its own, not listed]")
		}
		b.WriteByte('\n')
	}
	if list.Total > len(list.Entries) {
		fmt.Fprintf(&b, "[%d of %d entries; narrow it with path or glob]\n", len(list.Entries), list.Total)
	}
	return strings.TrimSuffix(b.String(), "\n"), nil
}
