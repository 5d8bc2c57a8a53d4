package contracttest

import (
	"bytes"
	"strings"

	"github.com/stretchr/testify/require"

	"github.com/carrel-dev/carrel/workspaces"
)

func diffCases() []Case {
	return []Case{
		{ID: "C43-everything", Rule: "A diff has all that changed, untracked and binary files too, and leaves index and status as they were.", run: everythingCase},
		{ID: "C43-committed", Rule: "What the model has committed since the checkout is in the diff.", run: committedCase},
		{ID: "C45-diff-ignores-config", Rule: "No setting of the repository changes a diff, or runs anything.", run: diffConfigCase},
		{ID: "W20-whole-patch", Rule: "The caller's diff is the whole patch, uncapped, and can be applied.", run: wholePatchCase},
	}
}

func (f *fixture) changes(w workspaces.Workspace) workspaces.Changed {
	f.Helper()
	changed, err := workspaces.Changes(f.Context(), w, workspaces.ChangesOptions{})
	require.NoError(f, err)
	return changed
}

func everythingCase(f *fixture) {
	w := f.workspace()
	f.shell(w, `
		printf 'one\ntwo\n' >f; printf 'a\n' >staged; printf 'node_modules\n' >.gitignore; git add -A; git commit -q -m base
		git update-ref refs/carrel/base HEAD
		printf 'one\nTWO\n' >f; printf 'b\n' >staged; git add staged; printf 'c\n' >>staged
		printf 'hi\n' >new.txt; mkdir newd node_modules; printf 'x\n' >newd/a; printf 'a\000b' >b.bin; printf 'x\n' >node_modules/x`)
	status := f.shell(w, "git status --short")
	index := f.shell(w, "git ls-files -s")
	check := func() {
		changed := f.changes(w)
		// Of a workspace that was made without a repository the other side is the empty tree.
		for _, part := range []string{"+++ b/f\n", "+TWO\n", "+++ b/new.txt\n@@ -0,0 +1 @@\n+hi\n", "+++ b/newd/a\n", "+b\n+c\n", "Binary files /dev/null and b/b.bin differ\n"} {
			require.Contains(f, changed.Diff, part)
		}
		require.NotContains(f, changed.Diff, "node_modules/x")
		require.Contains(f, changed.Status, "?? newd/a\n")
		require.NotContains(f, changed.Status, "node_modules")
		require.Empty(f, changed.Omitted)
	}
	check()
	require.Equal(f, status, f.shell(w, "git status --short"))
	require.Equal(f, index, f.shell(w, "git ls-files -s"))
	f.shell(w, "touch .git/index.lock")
	check()
	f.shell(w, "rm .git/index.lock")
	require.Equal(f, index, f.shell(w, "git ls-files -s"))
}

func committedCase(f *fixture) {
	w := f.workspace()
	f.shell(w, "echo one >f; git add f; git commit -q -m one; git mv f g; git commit -q -m two; echo two >h")
	changed := f.changes(w)
	require.Contains(f, changed.Diff, "+++ b/g\n@@ -0,0 +1 @@\n+one\n")
	require.Contains(f, changed.Diff, "+++ b/h\n@@ -0,0 +1 @@\n+two\n")
	require.Equal(f, "A  g\n?? h\n", changed.Status)
}

func diffConfigCase(f *fixture) {
	w := f.workspace()
	f.shell(w, "printf 'hat\\n' >f.txt; git add f.txt; git commit -q -m one; printf 'hot\\n' >n.txt; printf 'hit\\n' >f.txt")
	before := f.changes(w)
	f.shell(w, hostileConfig)
	changed := f.changes(w)
	require.Equal(f, before, changed)
	require.Contains(f, changed.Diff, "diff --git a/f.txt b/f.txt\n")
	require.NotContains(f, changed.Diff+changed.Status, "\x1b")
	require.NotContains(f, changed.Diff+changed.Status, "HIJACK")
	require.NotContains(f, changed.Status, "##")
	require.Contains(f, changed.Status, "?? n.txt\n")
	var patch bytes.Buffer
	require.NoError(f, workspaces.Diff(f.Context(), w, &patch))
	require.NotContains(f, patch.String(), "HIJACK")
	require.Equal(f, ".git\nf.txt\nn.txt\n", f.shell(w, "ls -A"))
}

func wholePatchCase(f *fixture) {
	m := f.manager(nil)
	w := f.acquire(f.open(m, "one"), workspaces.AcquireOptions{})
	lines := strings.Repeat("a line that is quite long and comes often\n", 10_000)
	f.write(w, "large", lines)
	f.write(w, "dir/binary", string(pattern(200_000)))
	f.shell(w, "ln -s large link; cp dir/binary run; chmod 755 run")
	var patch bytes.Buffer
	require.NoError(f, workspaces.Diff(f.Context(), w, &patch))
	require.Greater(f, patch.Len(), len(lines))

	other := f.acquire(f.open(m, "two"), workspaces.AcquireOptions{})
	apply := sh("git apply --binary -")
	apply.Stdin = &patch
	result := f.exec(other, apply)
	require.Zero(f, result.ExitCode, result.Stderr)
	const sums = "sha256sum large dir/binary run; readlink link; stat -c %a run dir/binary"
	require.Equal(f, f.shell(w, sums), f.shell(other, sums))
}
