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
	if status == "" && diff == "" && len(changed.Omitted) == 0 {
		return "No changes.", nil
	}
	parts := []string{"Status:\n" + status}
	if diff != "" {
		parts = append(parts, "Diff:\n"+diff)
	}
	if len(changed.Omitted) > 0 {
		parts = append(parts, fmt.Sprintf("[the diff of %d files is left out, it is too long: %s. See a file with read_file, or bash: git diff %s -- FILE]",
			len(changed.Omitted), strings.Join(changed.Omitted, ", "), base(r)))
	}
	return strings.Join(parts, "\n\n"), nil
}

// base is how a git command names what the run started from.
func base(r room) string {
	if r.Info().Commit == "" {
		return "HEAD"
	}
	return workspaces.BaseRef
}
