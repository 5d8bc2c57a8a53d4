package tools

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strings"

	"github.com/carrel-dev/carrel/workspaces"
)

//go:embed write.md
var writeText string

type writeArguments struct {
	Path    string `json:"path" jsonschema:"minLength=1,maxLength=4096" jsonschema_description:"File, relative to /workspace."`
	Content string `json:"content" jsonschema:"maxLength=1048576" jsonschema_description:"The whole new content, written exactly as given."`
	target
}

func writeFile(ctx context.Context, r room, a writeArguments) (string, error) {
	path := r.path(a.Path)
	if strings.HasSuffix(path, "/") {
		return "", refuse("%s names a directory. Give the path of a file; missing directories are created", quote(path))
	}
	at, err := workspaces.CleanPath(path)
	if err != nil {
		return "", err
	}
	if err := writeAt(ctx, r, path, at, []byte(a.Content)); err != nil {
		return "", err
	}
	return fmt.Sprintf("Wrote %d bytes to %s.", len(a.Content), path), nil
}

// writeAt writes a file unless it, or what links in path lead to, belongs to git. Where a
// path leads only the workspace knows: it says so instead of writing elsewhere.
func writeAt(ctx context.Context, r room, path, at string, data []byte) error {
	writer, ok := workspaces.As[workspaces.LinkWriter](r.Workspace)
	if !ok {
		return fmt.Errorf("%w: this workspace cannot say where a path leads", workspaces.ErrUnsupported)
	}
	// Who changes a link at every try only keeps himself waiting.
	for range 8 {
		if err := refuseGit(path, at); err != nil {
			return err
		}
		err := writer.WriteFileAt(ctx, path, at, data)
		if errors.Is(err, workspaces.ErrUnsupported) {
			return r.WriteFile(ctx, path, data)
		}
		var moved *workspaces.MovedError
		if !errors.As(err, &moved) {
			return err
		}
		at = moved.At
	}
	return refuse("the links in %s change all the time", path)
}

// refuseGit refuses a path that leads to .git or below it. A file system may take .GIT for
// the same.
func refuseGit(path, at string) error {
	for part := range strings.SplitSeq(at, "/") {
		if strings.EqualFold(part, ".git") {
			return refuse("%s belongs to git's own files (.git), which file tools do not write. Use git commands in bash", path)
		}
	}
	return nil
}
