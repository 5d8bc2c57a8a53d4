package tools

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cloudwego/eino/components/tool"
	"github.com/stretchr/testify/require"

	"github.com/carrel-dev/carrel/workspaces"
)

// everyTool has arguments with which a tool gets as far as looking for the workspace.
func everyTool(workspace string) map[string]string {
	calls := map[string]args{
		DisposeWorkspace: {}, ReadFile: {"path", "f"}, WriteFile: {"path", "f", "content", "x"}, EditFile: {"path", "f", "old_string", "a", "new_string", "b"},
		Grep: {"pattern", "x"}, ListFiles: {}, Bash: {"command", "true"}, GitDiff: {},
	}
	arguments := make(map[string]string)
	for name, a := range calls {
		if workspace != "" {
			a = append(a, "workspace", workspace)
		}
		arguments[name] = a.String()
	}
	return arguments
}

// proves T1: without a run every tool says how to install the hook; no run can be named in the arguments.
func TestRoom_T1_NoRun(t *testing.T) {
	s := newRoom(t)
	all := everyTool("")
	all[CreateWorkspace] = "{}"
	for name, arguments := range all {
		text, err := s.tools[name].InvokableRun(t.Context(), arguments)
		require.NoError(t, err)
		require.True(t, strings.HasPrefix(text, ErrorPrefix))
		require.Contains(t, text, "lifecycle.New(manager)")
		require.Contains(t, text, "workspaces.ContextWithRun")
	}
	s.refused(t, []string{`unknown field "run"`}, ListFiles, "run", "run-1")
	reader, err := s.tools[Bash].(tool.StreamableTool).StreamableRun(t.Context(), `{"command":"true"}`)
	require.NoError(t, err)
	require.Contains(t, strings.Join(collect(t, reader), ""), "lifecycle.New(manager)")
}

// proves T1: the id may be left out while there is one workspace; with several the error lists them, and a run reaches
// only its own.
func TestRoom_T1_Workspace(t *testing.T) {
	repository := "file://" + gitRepository(t, "f", "hi\n")
	s := newScene(t, workspaces.Options{AllowFileRepositories: true}, nil)
	for name, arguments := range everyTool("") {
		text, err := s.tools[name].InvokableRun(s.ctx, arguments)
		require.NoError(t, err)
		require.Equal(t, "Error: this run has no workspace. Call create_workspace first.", text, name)
	}
	for name, arguments := range everyTool("ws-other") {
		text, err := s.tools[name].InvokableRun(s.ctx, arguments)
		require.NoError(t, err)
		require.Equal(t, `Error: this run has no workspace "ws-other", and no other. Call create_workspace first.`, text, name)
	}

	first := s.create(t, "")
	s.call(t, WriteFile, "path", "f", "content", "first\n")
	require.Equal(t, "1\tfirst", s.call(t, ReadFile, "path", "f"))
	second := s.create(t, repository)
	for name, arguments := range everyTool("") {
		text, err := s.tools[name].InvokableRun(s.ctx, arguments)
		require.NoError(t, err)
		require.Equal(t, fmt.Sprintf("Error: this run has several workspaces. Say which one in workspace: %s (no repository), %s (%s).", first, second, repository), text, name)
	}
	require.Equal(t, "1\tfirst", s.call(t, ReadFile, "path", "f", "workspace", first))
	require.Equal(t, "1\thi", s.call(t, ReadFile, "path", "f", "workspace", second))

	_, theirs := s.open(t, "run-2")
	for name, arguments := range everyTool(first) {
		text, err := s.tools[name].InvokableRun(theirs, arguments)
		require.NoError(t, err)
		require.Contains(t, text, "this run has no workspace", name)
		require.NotContains(t, text, second)
	}
	require.Equal(t, "1\tfirst", s.call(t, ReadFile, "path", "f", "workspace", first))
}

// proves T2: results and errors name /workspace, where the files really are nowhere; the real path is understood.
func TestRoom_T2_Root(t *testing.T) {
	s := newRoom(t)
	root := s.root(t)
	var texts []string
	say := func(name string, a ...any) string {
		text := s.call(t, name, a...)
		texts = append(texts, text)
		return text
	}
	say(WriteFile, "path", "/workspace/d/f", "content", "x\n")
	say(WriteFile, "path", root+"/d/g", "content", "x\n")
	require.Equal(t, "1\tx", say(ReadFile, "path", root+"/d/f"))
	say(EditFile, "path", root+"/d/f", "old_string", "nosuch", "new_string", "y")
	say(ReadFile, "path", root+"/nosuch")
	say(ReadFile, "path", root+"/d")
	say(WriteFile, "path", root+"/d/f/x", "content", "x")
	require.NoError(t, os.Symlink("/etc/passwd", filepath.Join(root, "out")))
	say(ReadFile, "path", "out")
	require.NoError(t, os.WriteFile(filepath.Join(root, "big"), make([]byte, workspaces.FileMaxBytes+1), 0o644))
	say(ReadFile, "path", root+"/big")
	require.Equal(t, "d/f:1:x\nd/g:1:x", say(Grep, "pattern", "x", "path", root+"/d"))
	say(Grep, "pattern", "x", "path", root+"/nosuch")
	require.Equal(t, "d/f\nd/g", say(ListFiles, "path", root+"/d"))
	say(ListFiles, "path", root+"/nosuch")
	say(ListFiles, "path", root+"-evil")
	say(GitDiff)
	say(Bash, "command", "pwd; ls "+root+"/nosuch")
	require.NoError(t, os.RemoveAll(root))
	require.Contains(t, say(ReadFile, "path", "f"), "is gone")
	say(Bash, "command", "true")
	for _, text := range texts {
		require.NotContains(t, strings.ReplaceAll(text, root+"-evil", ""), root)
	}
}

// proves T3: create and dispose answer with JSON, all others with text in which nothing is escaped.
func TestRoom_T3_Results(t *testing.T) {
	repository := gitRepository(t, "f", "\t\"a\" <b> & \\n é\n")
	s := newScene(t, workspaces.Options{AllowFileRepositories: true}, nil)
	var made created
	text := s.call(t, CreateWorkspace, "repo", "file://"+repository+".git/", "ref", "main")
	require.NoError(t, json.Unmarshal([]byte(text), &made))
	require.Equal(t, "/workspace", made.Root)
	require.Equal(t, "file://"+repository, *made.Repo)
	require.Equal(t, "main", *made.Ref)
	require.Len(t, *made.Commit, 40)
	require.False(t, made.Reused)
	expires, err := time.Parse(time.RFC3339, *made.ExpiresAt)
	require.NoError(t, err)
	require.WithinDuration(t, time.Now().Add(workspaces.Lifetime), expires, 5*time.Minute)
	again := s.call(t, CreateWorkspace, "repo", "file://"+repository)
	require.Equal(t, strings.Replace(text, `"reused":false`, `"reused":true`, 1), again)
	s.refused(t, []string{"held", "other", made.Workspace, "dispose"}, CreateWorkspace, "repo", "file://"+repository, "ref", "other")

	require.Equal(t, "1\t\t\"a\" <b> & \\n é", s.call(t, ReadFile, "path", "f"))
	require.Equal(t, "f:1:\t\"a\" <b> & \\n é", s.call(t, Grep, "pattern", "<b>"))
	require.Equal(t, "\t\"a\" <b> & \\n é\n[bash: exit code 0]", s.call(t, Bash, "command", "cat f"))
	require.Equal(t, fmt.Sprintf(`{"workspace":%q,"disposed":true}`, made.Workspace), s.call(t, DisposeWorkspace))

	// Every truncation says so and how to see more.
	s.create(t, "")
	var many []string
	for i := range 1100 {
		many = append(many, fmt.Sprintf("many/%04d", i), "hit\n")
	}
	s.put(t, append(many, "long", strings.Repeat("x", 300_000), "lines", strings.Repeat("x\n", 3000))...)
	for want, text := range map[string]string{
		"[1000 of 1102 entries; narrow it with path or glob]":                                             s.call(t, ListFiles),
		"[the first 300 matches; there are more: narrow it with path, glob or a longer pattern]":          s.call(t, Grep, "pattern", "hit"),
		"long:1:" + strings.Repeat("x", 500) + " [line cut]":                                              s.call(t, Grep, "pattern", "x", "path", "long"),
		"[lines 1-2000 of 3000; continue with start_line 2001]":                                           s.call(t, ReadFile, "path", "lines"),
		"[line 1 is cut inside, after 65536 of 300000 characters; see more with bash: ":                   s.call(t, ReadFile, "path", "long"),
		"its middle is left out. To see all of it, send it to a file (COMMAND > out.txt 2>&1) and read t": s.call(t, Bash, "command", "cat long"),
		"so that the diff of these is left out: long":                                                     s.call(t, GitDiff),
	} {
		require.Contains(t, text, want)
	}
}

// proves T4: every way in which a workspace can fail is a result that says what to do next.
func TestSettle_T4_Results(t *testing.T) {
	op := func(err error) error { return &workspaces.OpError{Op: "exec", Workspace: "ws-1", Err: err} }
	for name, c := range map[string]struct {
		err  error
		want []string
	}{
		"gone":             {op(fmt.Errorf("%w: out of memory", workspaces.ErrGone)), []string{"workspace ws-1 is gone: ", "out of memory", "create_workspace"}},
		"expired":          {op(fmt.Errorf("%w at 12:00", workspaces.ErrExpired)), []string{"workspace ws-1", "12:00", "create_workspace"}},
		"disposed":         {op(workspaces.ErrDisposed), []string{"workspace ws-1 was disposed", "create_workspace"}},
		"run ended":        {op(workspaces.ErrRunEnded), []string{"this run has ended"}},
		"closed":           {workspaces.ErrClosed, []string{"shutting down", "report what is done"}},
		"limit":            {fmt.Errorf("%w: 3 of 3", workspaces.ErrLimitReached), []string{"3 of 3", "dispose_workspace"}},
		"ref held":         {fmt.Errorf("%w: main", workspaces.ErrRefHeld), []string{"main", "Leave ref and image out"}},
		"outcome unknown":  {op(workspaces.ErrOutcomeUnknown), []string{"may have run", "Look at what it changed"}},
		"unavailable":      {op(workspaces.ErrUnavailable), []string{"try again"}},
		"too large":        {op(workspaces.ErrTooLarge), []string{"1048576", "bash"}},
		"not there":        {op(&fs.PathError{Op: "read", Path: "f", Err: fs.ErrNotExist}), []string{"list_files"}},
		"not permitted":    {op(&fs.PathError{Op: "read", Path: "f", Err: fs.ErrPermission}), []string{"ls -l", "chmod"}},
		"checkout":         {&workspaces.OpError{Op: "checkout", Err: &workspaces.CheckoutError{}}, []string{"spelling of repo and ref"}},
		"invalid":          {fmt.Errorf("%w: bad path", workspaces.ErrInvalidInput), []string{"bad path"}},
		"unsupported":      {fmt.Errorf("%w: no images", workspaces.ErrUnsupported), []string{"no images"}},
		"unknown":          {errors.New("odd"), []string{"odd."}},
		"another's cancel": {op(context.Canceled), []string{"It was stopped before it was done"}},
		"another's time":   {op(context.DeadlineExceeded), []string{"It was stopped before it was done"}},
		"bytes":            {errors.New("a\xff" + strings.Repeat("x", 9000)), []string{"a\uFFFDxxx", "[cut]"}},
	} {
		t.Run(name, func(t *testing.T) {
			var reported error
			ctx := workspaces.ContextWithToolErrorReporter(t.Context(), func(err error) { reported = err })
			text, err := settle(ctx, c.err)
			require.NoError(t, err)
			require.True(t, strings.HasPrefix(text, ErrorPrefix))
			require.Less(t, len(text), 5000)
			require.Equal(t, strings.ToValidUTF8(text, ""), text)
			for _, want := range c.want {
				require.Contains(t, text, want)
			}
			require.Equal(t, c.err, reported, "telemetry learns of it")
		})
	}
}

// proves T4: the run's own end and Eino's interrupts pass, unchanged.
func TestSettle_T4_Errors(t *testing.T) {
	silent := workspaces.ContextWithToolErrorReporter(t.Context(), func(err error) { t.Errorf("reported: %v", err) })
	interrupt := tool.Interrupt(silent, "approve?")
	for _, err := range []error{interrupt, fmt.Errorf("wrapped: %w", interrupt)} {
		text, got := settle(silent, err)
		require.Empty(t, text)
		require.Equal(t, err, got)
		_, got = settle(silent, room{root: "/tmp/x"}.locate(err))
		require.Equal(t, err, got)
	}
	cancelled, cancel := context.WithCancel(silent)
	cancel()
	late, cancel := context.WithTimeout(silent, 0)
	defer cancel()
	for ctx, want := range map[context.Context]error{cancelled: context.Canceled, late: context.DeadlineExceeded} {
		for _, err := range []error{want, fmt.Errorf("exec: %w", want)} {
			text, got := settle(ctx, err)
			require.Empty(t, text)
			require.Equal(t, err, got)
		}
		text, got := settle(ctx, errors.New("lost in the cancel"))
		require.Empty(t, text)
		require.Equal(t, want, got)
		_, got = settle(ctx, workspaces.ErrGone)
		require.Equal(t, want, got)
	}
}

// proves T4: with a context that has ended every tool fails with its error, and does nothing.
func TestRoom_T4_Cancelled(t *testing.T) {
	s := newRoom(t)
	ctx, cancel := context.WithCancel(s.ctx)
	cancel()
	all := everyTool("")
	all[CreateWorkspace] = "{}"
	for name, arguments := range all {
		text, err := s.tools[name].InvokableRun(ctx, arguments)
		require.ErrorIs(t, err, context.Canceled, name)
		require.Empty(t, text)
	}
	require.Equal(t, "No files.", s.call(t, ListFiles))
}

// proves T4 and C57: what a tool meets when its workspace is disposed, expired, gone or the run over.
func TestRoom_T4_Endings(t *testing.T) {
	t.Run("C57 disposed while a command runs", func(t *testing.T) {
		s := newRoom(t)
		reader := s.stream(t, "command", "echo started; exec sleep 600")
		chunk, err := reader.Recv()
		require.NoError(t, err)
		require.Equal(t, "started\n", chunk)
		id := s.create(t, "")
		s.call(t, DisposeWorkspace)
		require.Contains(t, strings.Join(collect(t, reader), ""), "Error: workspace "+id+" was disposed. Call create_workspace for a new one; what was in it is lost.")
		for name, arguments := range everyTool(id) {
			text, err := s.tools[name].InvokableRun(s.ctx, arguments)
			require.NoError(t, err)
			require.Contains(t, text, "this run has no workspace", name)
		}
	})
	t.Run("expired", func(t *testing.T) {
		var passed atomic.Int64
		s := newScene(t, workspaces.Options{Now: func() time.Time { return time.Now().Add(time.Duration(passed.Load())) }}, nil)
		id := s.create(t, "")
		passed.Store(int64(time.Hour))
		s.refused(t, []string{id, "expired", "Call create_workspace for a new one"}, ReadFile, "path", "f")
		passed.Store(0)
		require.NotEqual(t, id, s.create(t, ""))
	})
	t.Run("gone", func(t *testing.T) {
		s := newScene(t, workspaces.Options{}, changeExec(func(context.Context, workspaces.Command, execFunc) (workspaces.Result, error) {
			return workspaces.Result{}, fmt.Errorf("%w: evicted", workspaces.ErrGone)
		}))
		id := s.create(t, "")
		s.refused(t, []string{"workspace " + id + " is gone: ", "evicted", "Call create_workspace for a new one"}, Bash, "command", "true")
		s.refused(t, []string{id, "gone", "Call create_workspace for a new one"}, ReadFile, "path", "f")
	})
	t.Run("run ended", func(t *testing.T) {
		s := newRoom(t)
		require.NoError(t, s.run.Release(t.Context(), workspaces.Completed))
		all := everyTool("")
		all[CreateWorkspace] = "{}"
		for name, arguments := range all {
			text, err := s.tools[name].InvokableRun(s.ctx, arguments)
			require.NoError(t, err)
			require.Contains(t, text, "this run has ended", name)
		}
	})
	t.Run("M2 limit", func(t *testing.T) {
		s := newScene(t, workspaces.Options{AllowFileRepositories: true, MaxPerRun: 1}, nil)
		id := s.create(t, "")
		s.refused(t, []string{"limit reached", id + " (no repository)", "dispose_workspace"}, CreateWorkspace, "repo", "file:///tmp/x")
	})
}

// proves T4: a panic below a tool is a result.
func TestRoom_T4_Panic(t *testing.T) {
	s := newScene(t, workspaces.Options{}, func(p workspaces.Provider) workspaces.Provider {
		return &changedProvider{Provider: p,
			exec: func(context.Context, workspaces.Command, execFunc) (workspaces.Result, error) { panic("exec") },
			read: func() error { panic("read") },
		}
	})
	s.create(t, "")
	s.refused(t, []string{"panic in the provider: exec"}, Bash, "command", "true")
	s.refused(t, []string{"panic in the provider: read"}, ReadFile, "path", "f")
	s.refused(t, []string{"panic in the provider: read"}, EditFile, "path", "f", "old_string", "a", "new_string", "b")

	// Not only a provider's.
	text, err := answer(t.Context(), Grep, func() (string, error) { panic(errors.New("nil map")) })
	require.NoError(t, err)
	require.Equal(t, "Error: grep failed inside (panic: nil map). What it did is unknown: look before you call it again.", text)
}
