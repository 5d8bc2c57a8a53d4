package workspaces

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// A shellWorkspace runs commands in a directory, as a provider does below the manager's
// guard: all that the git part of the package asks of a workspace.
type shellWorkspace struct {
	Workspace // what is not asked for panics

	root string
	env  []string
	info Info
	uid  uint32 // zero: ours

	execs atomic.Int64
}

// newShellWorkspace returns an empty workspace with a home and a temporary directory of its own. env comes
// after, and so wins over, what it sets.
func newShellWorkspace(t *testing.T, env ...string) *shellWorkspace {
	t.Helper()
	dir := t.TempDir()
	w := &shellWorkspace{root: filepath.Join(dir, "root")}
	for _, name := range []string{"root", "home", "tmp"} {
		require.NoError(t, os.Mkdir(filepath.Join(dir, name), 0o777))
	}
	w.env = append([]string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + filepath.Join(dir, "home"), "TMPDIR=" + filepath.Join(dir, "tmp"), "GIT_CONFIG_NOSYSTEM=1",
	}, env...)
	t.Cleanup(func() {
		left, err := os.ReadDir(filepath.Join(dir, "tmp"))
		require.NoError(t, err)
		require.Empty(t, left, "private git dirs that were left behind")
	})
	return w
}

func (w *shellWorkspace) Info() Info { return w.info }

func (w *shellWorkspace) Exec(ctx context.Context, command Command) (Result, error) {
	w.execs.Add(1)
	var out, errs Output
	c := exec.CommandContext(ctx, command.Args[0], command.Args[1:]...)
	c.Dir, c.Env, c.Stdin = w.root, w.env, command.Stdin
	c.Stdout, c.Stderr = &out, &errs
	if command.Stdout != nil {
		c.Stdout = io.MultiWriter(&out, dropErrors{command.Stdout})
	}
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if w.uid != 0 {
		c.SysProcAttr.Credential = &syscall.Credential{Uid: w.uid, Gid: w.uid}
	}
	// TERM first, as a provider does, so that the script's trap runs.
	c.Cancel = func() error { return syscall.Kill(-c.Process.Pid, syscall.SIGTERM) }
	err := c.Run()
	result := Result{
		ExitCode: c.ProcessState.ExitCode(), Stdout: out.String(), Stderr: errs.String(),
		StdoutTruncated: out.Truncated(), StdoutBytes: out.Bytes(),
	}
	var exit *exec.ExitError
	if ctx.Err() != nil {
		return result, ctx.Err()
	}
	if err != nil && !errors.As(err, &exit) {
		return result, err
	}
	return result, nil
}

// dropErrors goes on when its writer fails, as the guard does.
type dropErrors struct{ w io.Writer }

func (d dropErrors) Write(p []byte) (int, error) {
	_, _ = d.w.Write(p)
	return len(p), nil
}

// git runs git as the model would, in the workspace's own environment.
func (w *shellWorkspace) git(t *testing.T, args ...string) string {
	t.Helper()
	return w.sh(t, `git "$@"`, args...)
}

func (w *shellWorkspace) sh(t *testing.T, script string, args ...string) string {
	t.Helper()
	result, err := w.Exec(t.Context(), Command{Args: append([]string{"sh", "-ec", script, "sh"}, args...)})
	w.execs.Add(-1)
	require.NoError(t, err)
	require.Zero(t, result.ExitCode, "%s %q: %s", script, args, result.Stderr)
	return strings.TrimSuffix(result.Stdout, "\n")
}

// write makes files of name, content, name, content, ...
func (w *shellWorkspace) write(t *testing.T, files ...string) {
	t.Helper()
	for i := 0; i < len(files); i += 2 {
		path := filepath.Join(w.root, files[i])
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o777))
		require.NoError(t, os.WriteFile(path, []byte(files[i+1]), 0o644))
	}
}

func (w *shellWorkspace) exists(name string) bool {
	_, err := os.Lstat(filepath.Join(w.root, name))
	return err == nil
}

// tree is every file of the workspace and of its .git with its content, to see that nothing changed.
func (w *shellWorkspace) tree(t *testing.T) map[string]string {
	t.Helper()
	tree := make(map[string]string)
	require.NoError(t, filepath.WalkDir(w.root, func(path string, entry os.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		content, err := os.ReadFile(path)
		tree[path] = string(content)
		return err
	}))
	return tree
}

// newCheckedOut returns a workspace with files committed, as a checkout leaves it.
func newCheckedOut(t *testing.T, files ...string) *shellWorkspace {
	t.Helper()
	w := newShellWorkspace(t)
	_, err := checkout(t.Context(), w, "", "")
	require.NoError(t, err)
	w.write(t, files...)
	w.git(t, "add", "-A", "-f")
	w.git(t, "commit", "-q", "--allow-empty", "-m", "base")
	w.info.Commit = w.git(t, "rev-parse", "HEAD")
	w.git(t, "update-ref", BaseRef, "HEAD")
	w.execs.Store(0)
	return w
}

// hostileSettings is all that a model can set in a repository, and an operator in the
// environment, to change what git prints or to have it run something. Whatever runs makes a file "pwned-...".
func hostileSettings(t *testing.T, w *shellWorkspace) {
	t.Helper()
	run := func(name string) string { return "touch " + filepath.Join(w.root, "pwned-"+name) + ";" }
	hooks := filepath.Join(filepath.Dir(w.root), "hooks")
	require.NoError(t, os.Mkdir(hooks, 0o777))
	for _, hook := range []string{"post-index-change", "post-checkout", "reference-transaction", "fsmonitor-watchman"} {
		require.NoError(t, os.WriteFile(filepath.Join(hooks, hook), []byte("#!/bin/sh\n"+run("hook")+"\n"), 0o777))
	}
	for key, value := range map[string]string{
		"color.ui": "always", "diff.noprefix": "true", "diff.mnemonicPrefix": "true", "diff.external": run("external") + "echo HIJACK",
		"diff.foo.textconv": run("textconv") + "echo", "diff.foo.command": run("command") + "echo HIJACK",
		"status.branch": "true", "status.showUntrackedFiles": "no", "status.short": "false", "status.relativePaths": "true",
		"grep.column": "true", "grep.patternType": "fixed", "grep.fullName": "true", "grep.fallbackToNoIndex": "true",
		"core.quotePath": "true", "core.pager": run("pager") + "cat", "pager.diff": run("pager") + "cat", "pager.grep": run("pager") + "cat",
		"core.fsmonitor": run("fsmonitor"), "core.hooksPath": hooks, "core.attributesFile": filepath.Join(hooks, "attributes"),
		"core.excludesFile": filepath.Join(hooks, "excludes"), "core.worktree": "/", "core.bare": "false",
		"filter.x.clean": run("clean") + "cat", "filter.x.smudge": run("smudge") + "cat", "filter.x.process": run("process"), "filter.x.required": "true",
		"alias.diff": "!" + run("alias"), "include.path": filepath.Join(hooks, "include"), "diff.orderFile": filepath.Join(hooks, "order"),
		"diff.interHunkContext": "9", "diff.context": "9", "diff.renames": "false", "diff.submodule": "log", "diff.ignoreSubmodules": "none",
	} {
		w.git(t, "config", "--file", ".git/config", key, value)
	}
	require.NoError(t, os.WriteFile(filepath.Join(hooks, "include"), []byte("[diff]\n\tstatGraphWidth = 7\n"), 0o666))
	require.NoError(t, os.WriteFile(filepath.Join(hooks, "attributes"), []byte("* -diff filter=x\n"), 0o666))
	require.NoError(t, os.WriteFile(filepath.Join(hooks, "excludes"), []byte("*\n"), 0o666))
	require.NoError(t, os.WriteFile(filepath.Join(hooks, "order"), []byte("z*\n"), 0o666))
	w.env = append(w.env,
		"GIT_DIR=/nonexistent", "GIT_WORK_TREE=/", "GIT_INDEX_FILE=/nonexistent/index", "GIT_EXTERNAL_DIFF="+run("env-external"),
		"GIT_PAGER="+run("env-pager"), "GIT_OBJECT_DIRECTORY=/nonexistent", "GIT_LITERAL_PATHSPECS=1", "GIT_DIFF_OPTS=-u9",
		"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=core.fsmonitor", "GIT_CONFIG_VALUE_0="+run("env-config"),
		"GIT_CONFIG_PARAMETERS='color.ui=always'", "GIT_TRACE=1", "GIT_ODD=two\nexport GIT_B-AD=lines",
	)
}

// noneRan fails where something of hostileSettings did.
func noneRan(t *testing.T, w *shellWorkspace) {
	t.Helper()
	ran, err := filepath.Glob(filepath.Join(w.root, "pwned*"))
	require.NoError(t, err)
	require.Empty(t, ran)
}

// chunks writes data to w in the pieces that sizes ask for.
func chunks(w io.Writer, data, sizes []byte) error {
	for i := 0; len(data) > 0; i++ {
		n := len(data)
		if len(sizes) > 0 {
			n = min(n, int(sizes[i%len(sizes)])+1)
		}
		if _, err := w.Write(bytes.Clone(data[:n])); err != nil {
			return err
		}
		data = data[n:]
	}
	return nil
}
