package contracttest

import (
	"strings"

	"github.com/stretchr/testify/require"

	"github.com/carrel-dev/carrel/workspaces"
)

func checkoutCases() []Case {
	files := []Capability{FileRepositories}
	return []Case{
		{ID: "C1-none", Rule: "Without a repository a workspace is an empty git repository, in which the model can commit.", run: noRepositoryCase},
		{ID: "C1-branch", Rule: "A checkout is one shallow fetch; a branch stays a branch, and the commit is kept as refs/carrel/base.", Needs: files, run: branchCase},
		{ID: "C1-runs-nothing", Rule: "A checkout runs nothing of the repository: no hook, no submodule, no filter.", Needs: files, run: runsNothingCase},
		{ID: "C2-failing-step", Rule: "A step of a checkout that fails is an error with what git said, and leaves nothing.", Needs: files, run: failingStepCase},
		{ID: "C39-empty-remote", Rule: "An empty remote is a workspace without a commit.", Needs: files, run: emptyRemoteCase},
		{ID: "C41-host-settings", Rule: "Nothing of the host's git configuration or environment changes what a checkout contains or runs.", Needs: files, run: hostSettingsCase},
	}
}

// checkout returns a workspace with a repository of this host.
func (f *fixture) checkout(source repository, ref string) workspaces.Workspace {
	if f.first == nil {
		f.first = f.open(f.manager(func(o *workspaces.Options) { o.AllowFileRepositories = true }), runID)
	}
	return f.acquire(f.first, workspaces.AcquireOptions{Repository: source.url(), Ref: ref})
}

func noRepositoryCase(f *fixture) {
	w := f.workspace()
	require.Empty(f, w.Info().Commit)
	require.Equal(f, ".git\nmain\n", f.shell(w, "git rev-parse --git-dir; git symbolic-ref --short HEAD"))
	require.NotZero(f, f.exec(w, sh("git rev-parse -q --verify HEAD")).ExitCode)
	require.Empty(f, f.shell(w, "git status --short"))
	f.shell(w, "echo x >f; git add f; git commit -q -m one")
	require.Equal(f, "1\n", f.shell(w, "git rev-list --count HEAD"))
}

func branchCase(f *fixture) {
	source := f.repository()
	source.write("f", "one\n")
	source.commit("one")
	source.write("dir/café", "two\n")
	commit := source.commit("two")
	w := f.checkout(source, "main")
	require.Equal(f, commit, w.Info().Commit)
	require.Equal(f, "main", w.Info().Ref)
	require.True(f, strings.HasPrefix(w.Info().Repository, "file:///"))
	require.Equal(f, commit+"\n"+commit+"\n1\nmain\ntrue\n", f.shell(w, `
		git rev-parse HEAD refs/carrel/base; git rev-list --count HEAD; git symbolic-ref --short HEAD; git rev-parse --is-shallow-repository`))
	require.Equal(f, "origin/main\n", f.shell(w, "git rev-parse --abbrev-ref 'main@{upstream}'"))
	require.Empty(f, f.shell(w, "git status --short"))
	require.Equal(f, "two\n", string(f.read(w, "dir/café")))
	f.shell(w, "echo more >>f; git commit -q -a -m more; git fsck --strict")

	again, err := f.tryAcquire(f.Context(), f.first, workspaces.AcquireOptions{Repository: source.url() + "/"})
	require.NoError(f, err)
	require.True(f, again.Reused, "another spelling of the same repository")
	_, err = f.tryAcquire(f.Context(), f.first, workspaces.AcquireOptions{Repository: source.url(), Ref: commit})
	require.ErrorIs(f, err, workspaces.ErrRefHeld)
}

func runsNothingCase(f *fixture) {
	inner := f.repository()
	inner.write("g", "inner\n")
	commit := inner.commit("inner")
	source := f.repository()
	modules := "[submodule \"sub\"]\n\tpath = sub\n\turl = " + inner.url() + "\n"
	if f.can(SharesHost) { // elsewhere the repository is fetched on this host, whose fsck refuses it
		modules += "\tupdate = !touch pwned\n"
	}
	source.write(".gitmodules", modules)
	source.write(".gitattributes", "* filter=evil diff=evil\n")
	source.write(".git/hooks/post-checkout", "#!/bin/sh\ntouch pwned\n")
	source.write("hooks/post-checkout", "#!/bin/sh\ntouch pwned\n")
	source.git("update-index", "--add", "--cacheinfo", "160000,"+commit+",sub")
	source.git("add", ".gitmodules", ".gitattributes", "hooks")
	source.git("commit", "-q", "-m", "all")
	w := f.checkout(source, "")
	require.Equal(f, source.git("rev-parse", "HEAD"), w.Info().Commit)
	require.Empty(f, f.shell(w, "ls -A sub"))
	require.Equal(f, ".git\n.gitattributes\n.gitmodules\nhooks\nsub\n", f.shell(w, "LC_ALL=C ls -A"))
	require.Empty(f, f.shell(w, "ls .git/hooks 2>/dev/null; exit 0"))
}

func failingStepCase(f *fixture) {
	source := f.repository()
	source.write("f", "x")
	source.commit("one")
	run := f.open(f.manager(func(o *workspaces.Options) { o.AllowFileRepositories = true }), runID)
	for name, options := range map[string]workspaces.AcquireOptions{
		"no such branch":     {Repository: source.url(), Ref: "nosuch"},
		"no such commit":     {Repository: source.url(), Ref: strings.Repeat("1", 40)},
		"no such repository": {Repository: "file:///nonexistent/carrel/repository"},
	} {
		_, err := f.tryAcquire(f.Context(), run, options)
		var failure *workspaces.CheckoutError
		require.ErrorAs(f, err, &failure, name)
		require.NotEmpty(f, failure.Step, name)
		require.NotEmpty(f, failure.Stderr, name)
		require.NotZero(f, failure.ExitCode, name)
		require.NotContains(f, failure.Error(), "prompt", name)
		require.Empty(f, f.leftovers(f.deployment), name)
	}
	require.Equal(f, "x", string(f.read(f.acquire(run, workspaces.AcquireOptions{Repository: source.url()}), "f")))
}

func emptyRemoteCase(f *fixture) {
	source := f.repository()
	w := f.checkout(source, "")
	require.Empty(f, w.Info().Commit)
	f.unborn(w)
}

// unborn checks that list, grep and diff work before the first commit.
func (f *fixture) unborn(w workspaces.Workspace) {
	f.write(w, "a.txt", "hit\n")
	f.write(w, "f", "l1\n")
	f.shell(w, "git add f; echo l2 >>f; echo node_modules/ >.gitignore; mkdir node_modules; echo hit >node_modules/x")
	require.Equal(f, []workspaces.GrepMatch{{Path: "a.txt", Line: 1, Text: "hit"}}, f.grep(w, "hit").Matches)
	require.Equal(f, []string{".gitignore", "a.txt", "f"}, f.list(w, workspaces.ListOptions{}))
	changed := f.changes(w)
	require.Contains(f, changed.Diff, "+++ b/f\n@@ -0,0 +1,2 @@\n+l1\n+l2\n")
	require.Contains(f, changed.Diff, "+++ b/a.txt\n@@ -0,0 +1 @@\n+hit\n")
	require.NotContains(f, changed.Diff+changed.Status, "node_modules/x")
}

func hostSettingsCase(f *fixture) {
	pointer := "version https://git-lfs.github.com/spec/v1\noid sha256:" + strings.Repeat("a", 64) + "\nsize 1048576\n"
	source := f.repository()
	source.write(".gitattributes", "*.bin filter=lfs diff=lfs merge=lfs -text\n")
	source.write("m.bin", pointer)
	source.write("f", "3\n")
	source.commit("one")
	w := f.checkout(source, "main")
	require.Equal(f, pointer, string(f.read(w, "m.bin")))
	require.Equal(f, "3\n", string(f.read(w, "f")))
	require.Equal(f, ".git\n", f.shell(w, "git rev-parse --git-dir"))
	f.shell(w, "echo 4 >f; git commit -q -a -m four; git checkout -q -b other")
	require.Equal(f, "2\n", f.shell(w, "git rev-list --count HEAD"))
	// What the image or the user's own configuration in the workspace sets is theirs; of the host nothing is there.
	require.NotContains(f, f.shell(w, "git config --list"), "git-lfs-absent")
	require.NotContains(f, f.shell(w, "git config --list"), "autocrlf")
}
