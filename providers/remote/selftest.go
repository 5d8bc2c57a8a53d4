package remote

import (
	"context"
	_ "embed"
	"fmt"
	"strings"

	"github.com/carrel-dev/carrel/workspaces"
)

//go:embed selftest.sh
var selfTestScript string

// SelfTest tries out, in one exec, what the workspace needs in the sandbox. An error that matches
// workspaces.ErrUnsupported names what is missing or behaves wrongly.
func (w *Workspace) SelfTest(ctx context.Context) error {
	ctx, leave, err := w.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	out, errs := &limited{max: 4096}, &limited{max: 4096}
	exit, err := w.transport.Exec(ctx, []string{"sh", "-c", selfTestScript, "carrel", workspaces.Root}, Streams{Stdout: out, Stderr: errs})
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		return err
	}
	if exit != 0 {
		return fmt.Errorf("%w: the sandbox cannot run sh: exit code %d: %.300s", workspaces.ErrUnsupported, exit, strings.TrimSpace(string(out.data)+string(errs.data)))
	}
	// A transport may take a connection that was cut for the end of the script.
	said, whole := strings.CutSuffix(string(out.data), "done\n")
	if !whole {
		return fmt.Errorf("%w: the self-test broke off: %.300q", workspaces.ErrUnavailable, said)
	}
	if wrong := strings.TrimSpace(said); wrong != "" {
		return fmt.Errorf("%w: an image needs sh, git and GNU coreutils 8.31 or newer: %s", workspaces.ErrUnsupported, strings.ReplaceAll(wrong, "\n", "; "))
	}
	return nil
}
