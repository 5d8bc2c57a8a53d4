package contracttest

import (
	"io/fs"
	"strings"

	"github.com/stretchr/testify/require"

	"github.com/carrel-dev/carrel/workspaces"
)

func listCases() []Case {
	return []Case{
		{ID: "C23-names", Rule: "Each existing name is listed once and raw, as it can be read; deleted, ignored and git's own files are not.", run: namesCase},
		{ID: "C19-patterns", Rule: "A pattern is literal whatever it begins with; no match is a result, a bad pattern an error.", run: patternsCase},
		{ID: "C39-no-commit", Rule: "List, search and diff work before the first commit.", run: noCommitCase},
		{ID: "C45-search-ignores-config", Rule: "No setting of the repository changes what list and search answer, or runs anything.", run: searchConfigCase},
	}
}

func (f *fixture) list(w workspaces.Workspace, options workspaces.ListOptions) []string {
	f.Helper()
	list, err := workspaces.ListFiles(f.Context(), w, options)
	require.NoError(f, err)
	require.Equal(f, list.Total, len(list.Entries))
	var names []string
	for _, entry := range list.Entries {
		names = append(names, entry.Path)
	}
	return names
}

func (f *fixture) grep(w workspaces.Workspace, pattern string) workspaces.GrepResult {
	f.Helper()
	found, err := workspaces.Grep(f.Context(), w, workspaces.GrepOptions{Pattern: pattern})
	require.NoError(f, err, "%q", pattern)
	return found
}

func namesCase(f *fixture) {
	w := f.workspace()
	f.shell(w, `
		echo node_modules >.gitignore
		echo base >c.txt; echo x >gone.txt; echo x >kept.txt; git add -A; git commit -q -m base
		git checkout -q -b side; echo side >c.txt; git commit -q -a -m side
		git checkout -q main; echo main >c.txt; git commit -q -a -m main
		git merge -q side >/dev/null 2>&1; rm gone.txt
		mkdir -p .github node_modules nested; echo x >.github/w.yml; echo x >node_modules/x
		git init -q nested; echo x >nested/f; mkdir empty; ln -s kept.txt link`)
	names := []string{"café.txt", "new\nline.txt", `q"uote.txt`, " lead.txt", "-n", "tab\t.txt", "*", ":(top)x"}
	for _, name := range names {
		f.write(w, name, "hit\n")
	}
	require.ElementsMatch(f, append(names, ".gitignore", "c.txt", "kept.txt", "link", ".github/w.yml", "nested"), f.list(w, workspaces.ListOptions{}))
	for _, name := range names {
		require.Equal(f, "hit\n", string(f.read(w, name)))
	}
	var found []string
	for _, match := range f.grep(w, "^hit").Matches {
		found = append(found, match.Path)
	}
	require.ElementsMatch(f, names, found)
	require.Equal(f, []string{".github/w.yml"}, f.list(w, workspaces.ListOptions{Path: ".github"}))
	require.Equal(f, []string{"*"}, f.list(w, workspaces.ListOptions{Path: "*"}))
	_, err := workspaces.ListFiles(f.Context(), w, workspaces.ListOptions{Path: "nosuch"})
	require.ErrorIs(f, err, fs.ErrNotExist)
}

func patternsCase(f *fixture) {
	w := f.workspace()
	f.write(w, "f", "p->next --pdf-engine -77\n-e\n--\n")
	for pattern, lines := range map[string][]int{"->next": {1}, "--pdf-engine": {1}, "-77": {1}, "-e": {1, 2}, "--": {1, 3}, "-Otouch pwned": nil, "zzz": nil} {
		var found []int
		for _, match := range f.grep(w, pattern).Matches {
			require.Equal(f, "f", match.Path)
			found = append(found, match.Line)
		}
		require.Equal(f, lines, found, "%q", pattern)
	}
	for _, pattern := range []string{"(", "[z-a]", ""} {
		_, err := workspaces.Grep(f.Context(), w, workspaces.GrepOptions{Pattern: pattern})
		require.ErrorIs(f, err, workspaces.ErrInvalidInput, "%q", pattern)
	}
	require.Equal(f, ".git\nf\n", f.shell(w, "ls -A"))
	// More than an output's cap.
	f.write(w, "many", strings.Repeat("many "+strings.Repeat("x", 400)+"\n", 1000))
	found := f.grep(w, "many")
	require.Len(f, found.Matches, 300)
	require.True(f, found.More)
}

func noCommitCase(f *fixture) {
	w := f.workspace()
	require.Empty(f, f.list(w, workspaces.ListOptions{}))
	require.Empty(f, f.grep(w, "x").Matches)
	require.Empty(f, f.changes(w).Diff)
	f.unborn(w)
}

// hostileConfig changes all that git lets a repository change of its output, and runs what it can.
const hostileConfig = `
	git config color.ui always; git config diff.noprefix true; git config diff.mnemonicPrefix true
	git config status.branch true; git config status.showUntrackedFiles no; git config core.quotePath true
	git config grep.column true; git config grep.patternType fixed; git config grep.lineNumber false
	git config core.pager 'echo HIJACK >>pwned; cat'; git config core.fsmonitor 'echo HIJACK >>pwned; false'
	git config diff.external 'sh -c "echo HIJACK | tee -a pwned"'; git config diff.foo.textconv 'sh -c "echo HIJACK | tee -a pwned"'
	git config diff.foo.command 'sh -c "echo HIJACK | tee -a pwned"'
	git config filter.foo.clean 'sh -c "echo HIJACK | tee -a pwned"'; git config filter.foo.smudge 'sh -c "echo HIJACK | tee -a pwned"'
	git config core.hooksPath "$PWD/.git/evil"; mkdir -p .git/evil
	for hook in post-index-change post-checkout reference-transaction fsmonitor-watchman; do
		printf '#!/bin/sh\necho HIJACK >>pwned\n' >.git/evil/$hook; chmod 755 .git/evil/$hook
	done
	echo '*.txt diff=foo filter=foo' >.git/info/attributes 2>/dev/null || { mkdir -p .git/info; echo '*.txt diff=foo filter=foo' >.git/info/attributes; }`

func searchConfigCase(f *fixture) {
	w := f.workspace()
	f.shell(w, "printf 'hat\\n' >f.txt; git add f.txt; git commit -q -m one; printf 'hot\\n' >n.txt; printf 'hit\\n' >f.txt")
	f.shell(w, hostileConfig)
	require.Equal(f, []string{"f.txt", "n.txt"}, f.list(w, workspaces.ListOptions{}))
	require.Equal(f, []workspaces.GrepMatch{{Path: "f.txt", Line: 1, Text: "hit"}, {Path: "n.txt", Line: 1, Text: "hot"}}, f.grep(w, "h.t").Matches)
	require.Equal(f, ".git\nf.txt\nn.txt\n", f.shell(w, "ls -A"))
}
