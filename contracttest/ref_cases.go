package contracttest

import (
	"fmt"
	"strings"

	"github.com/stretchr/testify/require"

	"github.com/carrel-dev/carrel/workspaces"
)

func refCases() []Case {
	files := []Capability{FileRepositories}
	return []Case{
		{ID: "C36-refs", Rule: "A full commit, a tag, branches of any name and no ref at all resolve to the commit git means, not to a tag object.", Needs: files, run: refsCase},
		{ID: "C36-short-commit", Rule: "A short commit id is refused with the advice to use the full one.", Needs: files, run: shortCommitCase},
		{ID: "C36-tag-before-branch", Rule: "Of a tag and a branch of one name the tag is checked out.", Needs: files, run: tagBeforeBranchCase},
		{ID: "C38-refused", Rule: "A ref or repository that git could take for something else is refused before anything is started.", Needs: files, run: refusedCase},
	}
}

// checkouts acquires a repository at refs, one run each, and calls check for each.
func (f *fixture) checkouts(source repository, refs map[string]string) {
	m := f.manager(func(o *workspaces.Options) { o.AllowFileRepositories = true })
	for ref, commit := range refs {
		run := f.open(m, fmt.Sprintf("run of %q", ref))
		w := f.acquire(run, workspaces.AcquireOptions{Repository: source.url(), Ref: ref})
		require.Equal(f, commit, w.Info().Commit, "%q", ref)
		require.Equal(f, commit+"\n1\n", f.shell(w, "git rev-parse HEAD; git rev-list --count HEAD"), "%q", ref)
		require.Empty(f, f.shell(w, "git status --short"), "%q", ref)
		f.dispose(w)
	}
}

func refsCase(f *fixture) {
	source := f.repository()
	source.write("docs/f", "1\n")
	c1 := source.commit("c1")
	source.git("tag", "-a", "-m", "v1", "v1")
	source.git("branch", "deadbeef")
	source.write("f", "2\n")
	c2 := source.commit("c2")
	source.git("branch", "feat/a/b")
	source.git("branch", "docs")
	source.write("f", "3\n")
	c3 := source.commit("c3")
	source.git("branch", "tag")
	f.checkouts(source, map[string]string{
		c1: c1, "v1": c1, "deadbeef": c1, "feat/a/b": c2, "docs": c2, "": c3, "tag": c3,
	})
}

func shortCommitCase(f *fixture) {
	source := f.repository()
	commit := source.commit("one")
	run := f.open(f.manager(func(o *workspaces.Options) { o.AllowFileRepositories = true }), runID)
	_, err := f.tryAcquire(f.Context(), run, workspaces.AcquireOptions{Repository: source.url(), Ref: commit[:7]})
	require.ErrorIs(f, err, workspaces.ErrInvalidInput)
	require.ErrorContains(f, err, "full commit id")
	require.Empty(f, f.leftovers(f.deployment))
	w := f.acquire(run, workspaces.AcquireOptions{Repository: source.url(), Ref: commit})
	require.Equal(f, commit, w.Info().Commit)
}

func tagBeforeBranchCase(f *fixture) {
	source := f.repository()
	c1 := source.commit("one")
	source.git("tag", "same")
	source.commit("two")
	source.git("branch", "same")
	f.checkouts(source, map[string]string{"same": c1})
}

func refusedCase(f *fixture) {
	source := f.repository()
	source.write("f", "x")
	source.commit("one")
	source.git("branch", "dev")
	run := f.open(f.manager(func(o *workspaces.Options) { o.AllowFileRepositories = true }), runID)
	for _, ref := range []string{
		"--upload-pack=touch pwned;", "-q", "main:evil", "+main", "^main", "main..dev", "main~1", "main^{}", "@{-1}", "HEAD~1", " main", "main\n", "a b",
		"refs/../x", "x.lock", "refs/heads/main:refs/heads/evil", "main\x00", "@",
	} {
		_, err := f.tryAcquire(f.Context(), run, workspaces.AcquireOptions{Repository: source.url(), Ref: ref})
		require.ErrorIs(f, err, workspaces.ErrInvalidInput, "ref %q", ref)
	}
	for _, repository := range []string{
		"--upload-pack=touch pwned", "-x/y", "ext::sh -c id", "https://h/x?y", "git@h:x", "owner/..", "ssh://h/x", "file://host/x", "http://h/x",
		"https://user:tok_SECRET@127.0.0.1:1/x.git", "https://tok_SECRET@github.com/a/b",
	} {
		_, err := f.tryAcquire(f.Context(), run, workspaces.AcquireOptions{Repository: repository})
		require.ErrorIs(f, err, workspaces.ErrInvalidInput, "repository %q", repository)
		require.NotContains(f, err.Error(), "SECRET")
	}
	strict := f.open(f.manager(nil), "strict")
	_, err := f.tryAcquire(f.Context(), strict, workspaces.AcquireOptions{Repository: source.url()})
	require.ErrorIs(f, err, workspaces.ErrInvalidInput, "a file repository that is not allowed")
	require.Empty(f, f.leftovers(f.deployment))

	w := f.acquire(run, workspaces.AcquireOptions{Repository: source.url(), Ref: "main"})
	refs := strings.Fields(f.shell(w, "git for-each-ref --format='%(refname)'"))
	require.Subset(f, []string{"refs/carrel/base", "refs/heads/main", "refs/remotes/origin/main", "refs/remotes/origin/HEAD"}, refs)
	require.Equal(f, ".git\nf\n", f.shell(w, "ls -A"))
	require.Equal(f, ".git\nf\n", strings.Join(f.hostNames(source.dir), "\n")+"\n")
}
