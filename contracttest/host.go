package contracttest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	// spoiledEnv names a variable of the host. No workspace may see it.
	spoiledEnv = "CARREL_CONTRACT_HOST"

	spoiledValue = "s3cret-of-the-host"
)

// spoilEnvironment sets what a developer's machine may have set and a workspace must not inherit. It returns
// a file that is there once a hook or a helper of that has been run.
func spoilEnvironment(t *testing.T) (ran string) {
	dir := t.TempDir()
	hooks := filepath.Join(dir, "template", "hooks")
	require.NoError(t, os.MkdirAll(hooks, 0o755))
	ran = filepath.Join(dir, "ran")
	script := "#!/bin/sh\ntouch " + ran + "\nexit 1\n"
	hook, ask := filepath.Join(hooks, "post-checkout"), filepath.Join(dir, "ask")
	for _, file := range []string{hook, ask} {
		require.NoError(t, os.WriteFile(file, []byte(script), 0o755))
	}
	config := filepath.Join(dir, "gitconfig")
	require.NoError(t, os.WriteFile(config, []byte(`
[core]
	autocrlf = true
	hooksPath = `+hooks+`
[init]
	templateDir = `+filepath.Dir(hooks)+`
[filter "lfs"]
	smudge = git-lfs-absent smudge %f
	required = true
[commit]
	gpgSign = true
[credential]
	helper = `+ask+`
[url "file:///nowhere/"]
	insteadOf = file:///
`), 0o644))
	for name, value := range map[string]string{
		spoiledEnv:          spoiledValue,
		"GIT_CONFIG_GLOBAL": config,
		"GIT_DIR":           filepath.Join(dir, "other", ".git"),
		"GIT_INDEX_FILE":    filepath.Join(dir, "other", "index"),
		"GIT_ASKPASS":       ask,
		"SSH_ASKPASS":       ask,
	} {
		t.Setenv(name, value)
	}
	// One that children inherit, as some terminals and CI runners leave open.
	descriptor, err := syscall.Open(os.DevNull, syscall.O_RDONLY, 0)
	require.NoError(t, err)
	t.Cleanup(func() { _ = syscall.Close(descriptor) })
	return ran
}

// A repository is one on the host, with a work tree, to be checked out from.
type repository struct {
	f   *fixture
	dir string
}

// repository makes a repository on the host, without a commit.
func (f *fixture) repository() repository {
	r := repository{f, filepath.Join(f.TempDir(), "source")}
	require.NoError(f, os.Mkdir(r.dir, 0o755))
	r.git("init", "-q", "-b", "main", "--template=")
	// Hosts that let nobody fetch a commit by its id are no concern of a provider.
	r.git("config", "uploadpack.allowAnySHA1InWant", "true")
	return r
}

func (r repository) url() string { return "file://" + r.dir }

// git runs git in the repository, as far from the host's configuration as it gets.
func (r repository) git(args ...string) string {
	r.f.Helper()
	command := exec.CommandContext(r.f.Context(), "git", append([]string{"-C", r.dir}, args...)...)
	command.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=/dev/null", "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1",
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@localhost", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@localhost",
	}
	out, err := command.CombinedOutput()
	require.NoError(r.f, err, "git %q on the host: %s", args, out)
	return strings.TrimSpace(string(out))
}

// write writes a file into the work tree.
func (r repository) write(path, content string) {
	file := filepath.Join(r.dir, path)
	require.NoError(r.f, os.MkdirAll(filepath.Dir(file), 0o755))
	require.NoError(r.f, os.WriteFile(file, []byte(content), 0o644))
}

// commit commits all that is in the work tree and returns the commit.
func (r repository) commit(message string) string {
	r.git("add", "-A")
	r.git("commit", "-q", "--allow-empty", "-m", message)
	return r.git("rev-parse", "HEAD")
}
