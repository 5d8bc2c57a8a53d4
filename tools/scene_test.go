package tools

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cloudwego/eino/components/tool"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/carrel-dev/carrel/providers/local"
	"github.com/carrel-dev/carrel/workspaces"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A scene is a run with the nine tools over workspaces of the local provider.
type scene struct {
	ctx     context.Context // with the run
	manager *workspaces.Manager
	run     *workspaces.Run
	tools   map[string]tool.InvokableTool
}

// newScene returns a scene that ends with the test. wrap, unless nil, changes its provider.
func newScene(t *testing.T, options workspaces.Options, wrap func(workspaces.Provider) workspaces.Provider) *scene {
	t.Helper()
	var provider workspaces.Provider
	provider, err := local.New(local.Options{Root: t.TempDir()})
	require.NoError(t, err)
	if wrap != nil {
		provider = wrap(provider)
	}
	options.CollectInterval = -1
	manager, err := workspaces.NewManager(provider, options)
	require.NoError(t, err)
	s := &scene{manager: manager, tools: make(map[string]tool.InvokableTool)}
	t.Cleanup(func() { require.NoError(t, manager.Close(context.Background())) })
	all, err := New(manager)
	require.NoError(t, err)
	for i, name := range Names() {
		s.tools[name] = all[i].(tool.InvokableTool)
	}
	s.run, s.ctx = s.open(t, "run-1")
	return s
}

// newRoom is newScene with one workspace without a repository in it.
func newRoom(t *testing.T) *scene {
	t.Helper()
	s := newScene(t, workspaces.Options{}, nil)
	s.create(t, "")
	return s
}

func (s *scene) open(t *testing.T, id string) (*workspaces.Run, context.Context) {
	t.Helper()
	run, err := s.manager.Open(id)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, run.Release(context.Background(), workspaces.Completed)) })
	return run, workspaces.ContextWithRun(t.Context(), run)
}

// args are the arguments of a call: names and values in turn.
type args []any

func (a args) String() string {
	object := make(map[string]any)
	for i := 0; i < len(a); i += 2 {
		object[a[i].(string)] = a[i+1]
	}
	data, err := json.Marshal(object)
	if err != nil {
		panic(err)
	}
	return string(data)
}

// call calls a tool, which must not fail the run.
func (s *scene) call(t *testing.T, name string, a ...any) string {
	t.Helper()
	text, err := s.tools[name].InvokableRun(s.ctx, args(a).String())
	require.NoError(t, err)
	require.NotEmpty(t, text)
	return text
}

// refused calls a tool, whose result must begin as a failure and hold every one of want.
func (s *scene) refused(t *testing.T, want []string, name string, a ...any) string {
	t.Helper()
	text := s.call(t, name, a...)
	require.True(t, strings.HasPrefix(text, ErrorPrefix), text)
	for _, w := range want {
		require.Contains(t, text, w)
	}
	return text
}

// create acquires a workspace by the tool.
func (s *scene) create(t *testing.T, repo string) (id string) {
	t.Helper()
	var a []any
	if repo != "" {
		a = []any{"repo", repo}
	}
	text := s.call(t, CreateWorkspace, a...)
	var result created
	require.NoError(t, json.Unmarshal([]byte(text), &result), text)
	return result.Workspace
}

// root is the real directory of the run's only workspace.
func (s *scene) root(t *testing.T) string {
	t.Helper()
	ws, err := s.run.Get(s.ctx, "")
	require.NoError(t, err)
	dir, ok := workspaces.As[workspaces.HostDir](ws)
	require.True(t, ok)
	return dir.HostDir()
}

// put writes files below the real directory: name, content, name, content, ...
func (s *scene) put(t *testing.T, files ...string) {
	t.Helper()
	root := s.root(t)
	for i := 0; i < len(files); i += 2 {
		path := filepath.Join(root, files[i])
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(files[i+1]), 0o644))
	}
}

func (s *scene) file(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(s.root(t), name))
	require.NoError(t, err)
	return string(data)
}

// gitRepository makes a repository with one commit on main and a branch "other": name, content, name, content, ...
func gitRepository(t *testing.T, files ...string) (dir string) {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	for i := 0; i < len(files); i += 2 {
		path := filepath.Join(dir, files[i])
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(files[i+1]), 0o644))
	}
	git := exec.Command("sh", "-ec", `git init -q -b main .; git add -A -f; git commit -q --allow-empty -m base; git branch other`)
	git.Dir = dir
	git.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1",
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@b", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@b")
	out, err := git.CombinedOutput()
	require.NoError(t, err, string(out))
	return dir
}
