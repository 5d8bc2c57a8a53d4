package tools

import (
	"context"
	_ "embed"
	"fmt"
	"strings"

	"github.com/carrel-dev/carrel/workspaces"
)

//go:embed diff.md
var diffText string

type diffArguments struct {
	target
}

func gitDiff(ctx context.Context, r room, _ diffArguments) (string, error) {
	changed, err := workspaces.Changes(ctx, r.Workspace, workspaces.ChangesOptions{})
	if err != nil {
		return "", err
	}
	status, diff := strings.TrimRight(changed.Status, "\n"), strings.TrimSuffix(changed.Diff, "\n")
	if status == "" && diff == "" {
		return "No changes.", nil
	}
	var parts []string
	if changed.BaseLost {
		parts = append(parts, "[the commit that this workspace started from is no longer in its repository: everything counts as new]")
	}
	parts = append(parts, "Status:\n"+status)
	if diff != "" {
		parts = append(parts, "Diff:\n"+diff)
	}
	if len(changed.Omitted) > 0 {
		see := "read_file"
		if !changed.BaseLost && r.Info().Commit != "" {
			see += ", or what was there before with bash: git diff " + workspaces.BaseRef + " -- FILE"
		}
		parts = append(parts, fmt.Sprintf("[too long, so that the diff of these is left out: %s. See one with %s]", strings.Join(changed.Omitted, ", "), see))
	}
	if len(changed.Unreadable) > 0 {
		parts = append(parts, fmt.Sprintf("[not readable, so that the diff of these is left out: %s]", strings.Join(changed.Unreadable, ", ")))
	}
	return strings.Join(parts, "\n\n"), nil
}
