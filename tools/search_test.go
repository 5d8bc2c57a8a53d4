package tools

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/carrel-dev/carrel/workspaces"
)

// proves T9 and C19: a pattern is a pattern, whatever it starts with.
func TestGrep_T9_C19_DashPatterns(t *testing.T) {
	s := newRoom(t)
	s.put(t, "f", "p->next --pdf-engine -77\n")
	for _, pattern := range []string{"->next", "--pdf-engine", "-77", "-e", "--"} {
		require.Equal(t, "f:1:p->next --pdf-engine -77", s.call(t, Grep, "pattern", pattern), pattern)
	}
	require.Equal(t, "No matches.", s.call(t, Grep, "pattern", "-Otouch pwned"))
	require.NoFileExists(t, filepath.Join(s.root(t), "pwned"))
}

// proves T9 and C20: no match is a result, a bad pattern an error with git's message.
func TestGrep_T9_C20_Outcomes(t *testing.T) {
	s := newRoom(t)
	s.put(t, "f", "hit\nd1\n", ".gitignore", "ignored\n", "ignored", "hit\n")
	require.Equal(t, "No matches.", s.call(t, Grep, "pattern", "zzz"))
	s.refused(t, []string{"bad pattern", "Unmatched ("}, Grep, "pattern", "(")
	s.refused(t, []string{"bad pattern", "Invalid range end"}, Grep, "pattern", "[z-a]")
	s.refused(t, []string{"pattern is empty"}, Grep, "pattern", "")
	s.refused(t, []string{"matched line by line"}, Grep, "pattern", "hit\nd1")
	s.refused(t, []string{"does not exist", "list_files"}, Grep, "pattern", "hit", "path", "nosuch")
	require.Equal(t, "f:1:hit", s.call(t, Grep, "pattern", "HIT", "ignore_case", true))
	require.Equal(t, "f:2:d1", s.call(t, Grep, "pattern", "^d[0-9]+$", "glob", "f"))

	// Where a model is likely to have meant something else, it is told.
	require.Equal(t, "No matches.\n[in a POSIX extended regular expression \\d is no digit: write [0-9], or [^0-9] for \\D]", s.call(t, Grep, "pattern", `line \d+`))
	require.Equal(t, "No matches.", s.call(t, Grep, "pattern", `C:\\dir`))
	require.Equal(t, "No matches.\n"+strings.TrimSpace(ignoredHint), s.call(t, Grep, "pattern", "hit", "path", "ignored"))
	require.Equal(t, "No files match.\n"+strings.TrimSpace(ignoredHint), s.call(t, ListFiles, "path", "ignored"))
}

// proves T9: binary files and megabyte lines are bounded, no hit is lost to them, and what cannot be read is named.
func TestGrep_T9_Bounds(t *testing.T) {
	s := newRoom(t)
	s.put(t, "a.bin", "hit\x00\n", "b.min", "hit"+strings.Repeat("中", 700_000)+"\nlast hit\n", "z", "hit\n")
	text := s.call(t, Grep, "pattern", "hit")
	require.Equal(t, "b.min:1:hit"+strings.Repeat("中", 497)+" [line cut]\nb.min:2:last hit\nz:1:hit\n[binary file matches: a.bin]", text)
	require.True(t, utf8.ValidString(text))
	if os.Geteuid() != 0 { // root reads everything; package workspaces proves the rest
		s.put(t, "secret", "hit\n")
		require.NoError(t, os.Chmod(filepath.Join(s.root(t), "secret"), 0))
		require.Contains(t, s.call(t, Grep, "pattern", "hit"), "[not readable, so not searched: secret]")
	}
}

// proves T9 and C23: names are raw, each once, and as good for read_file as listed.
func TestList_T9_C23_Names(t *testing.T) {
	s := newRoom(t)
	require.Equal(t, "No files.", s.call(t, ListFiles))
	s.put(t, "gone.txt", "g\n", "c.txt", "base\n")
	s.call(t, Bash, "command", `git config user.name a; git config user.email a@b
git add .; git commit -qm base; git checkout -qb side; echo side >c.txt; git commit -qam side
git checkout -q main; echo main >c.txt; git commit -qam main; git merge side; rm gone.txt; git init -q nested; echo x >nested/x`)
	s.put(t, "café.txt", "hit\n", "q\"uote.txt", "hit\n", " lead.txt", "hit\n", ".github/w.yml", "hit\n", "node_modules/x", "hit\n", ".gitignore", "node_modules/\n")
	want := []string{" lead.txt", ".github/w.yml", ".gitignore", "c.txt", "café.txt", "nested/ [a git repository of its own, not listed]", "q\"uote.txt"}
	require.Equal(t, strings.Join(want, "\n"), s.call(t, ListFiles))
	for _, name := range []string{" lead.txt", ".github/w.yml", "café.txt", "q\"uote.txt"} {
		require.Equal(t, "1\thit", s.call(t, ReadFile, "path", name))
	}
	require.Equal(t, " lead.txt:1:hit\n.github/w.yml:1:hit\ncafé.txt:1:hit\nq\"uote.txt:1:hit", s.call(t, Grep, "pattern", "hit"))
	require.Equal(t, " lead.txt\nc.txt\ncafé.txt\nq\"uote.txt", s.call(t, ListFiles, "glob", "*.txt"))
	s.put(t, "new\nline.txt", "n\n")
	require.Contains(t, s.call(t, ListFiles), "new\nline.txt")
}

// proves T9, C39 and C43: before the first commit there is a diff as well, with everything in it, and the index stays.
func TestDiff_C39_NoCommit(t *testing.T) {
	s := newRoom(t)
	require.Equal(t, "No changes.", s.call(t, GitDiff))
	s.put(t, "a.txt", "hit\n", "f", "l1\n", ".gitignore", "node_modules/\n", "node_modules/x", "hit\n")
	s.call(t, Bash, "command", "git add f; echo l2 >> f")
	status := s.call(t, Bash, "command", "git status --short")
	require.Equal(t, "a.txt:1:hit", s.call(t, Grep, "pattern", "hit"))
	require.Equal(t, ".gitignore\na.txt\nf", s.call(t, ListFiles))
	text := s.call(t, GitDiff)
	require.True(t, strings.HasPrefix(text, "Status:\nAM f\n?? .gitignore\n?? a.txt\n\nDiff:\ndiff --git a/.gitignore b/.gitignore\n"), text)
	require.Contains(t, text, "+++ b/f\n@@ -0,0 +1,2 @@\n+l1\n+l2")
	require.Contains(t, text, "+++ b/a.txt\n@@ -0,0 +1 @@\n+hit")
	require.NotContains(t, text, "node_modules/x")
	require.Equal(t, status, s.call(t, Bash, "command", "git status --short"))

	// What is left out is named, with a way to see it that works.
	s.put(t, "big", strings.Repeat("big\n", 30_000))
	text = s.call(t, GitDiff)
	require.Contains(t, text, "?? big")
	require.True(t, strings.HasSuffix(text, "\n\n[too long, so that the diff of these is left out: big. See one with read_file]"), text)
}

// proves C43, C45 and T9: committed, staged, unstaged and new work is there, in one format whatever the repository sets.
func TestDiff_C43_C45_Everything(t *testing.T) {
	repository := gitRepository(t, "f.txt", "one\n", "committed", "c\n", "big", "b\n", ".gitattributes", "*.txt diff=foo\n")
	s := newScene(t, workspaces.Options{AllowFileRepositories: true}, nil)
	s.create(t, "file://"+repository)
	s.put(t, "f.txt", "h-t\n", "n.txt", "h-t\n", "newd/a", "a\n", "b.bin", "a\x00b", "committed", "C\n")
	s.call(t, Bash, "command", "git add committed; git -c user.name=a -c user.email=a@b commit -qm x")
	plain, found := s.call(t, GitDiff), s.call(t, Grep, "pattern", "h.t")
	require.True(t, strings.HasPrefix(plain, "Status:\nM  committed\n M f.txt\n?? b.bin\n?? n.txt\n?? newd/a\n\nDiff:\n"), plain)
	for _, want := range []string{"diff --git a/f.txt b/f.txt\n", "-one\n+h-t\n", "-c\n+C\n", "+++ b/n.txt\n", "+++ b/newd/a\n", "Binary files /dev/null and b/b.bin differ\n"} {
		require.Contains(t, plain, want)
	}
	require.Equal(t, "f.txt:1:h-t\nn.txt:1:h-t", found)
	s.call(t, Bash, "command", `git config color.ui always; git config diff.noprefix true; git config diff.mnemonicPrefix true; git config status.branch true
git config status.showUntrackedFiles no; git config diff.external 'sh -c "echo HIJACK; touch pwned"'; git config grep.column true; git config grep.patternType fixed
git config core.quotePath true; git config diff.foo.textconv 'sh -c "touch pwned"'; : > .git/index.lock`)
	require.Equal(t, plain, s.call(t, GitDiff))
	require.Equal(t, found, s.call(t, Grep, "pattern", "h.t"))
	require.NoFileExists(t, filepath.Join(s.root(t), "pwned"))

	s.put(t, "big", strings.Repeat("big\n", 30_000))
	text := s.call(t, GitDiff)
	require.Contains(t, text, " M big\n")
	_, command, _ := strings.Cut(text, "[too long, so that the diff of these is left out: big. See one with read_file, or what was there before with bash: ")
	command, _, _ = strings.Cut(strings.Replace(command, "FILE", "big", 1), "]")
	require.Contains(t, s.call(t, Bash, "command", "git config --unset diff.external; git config color.ui never; "+command), "-b\n+big\n+big\n")

	s.call(t, Bash, "command", "rm -rf .git; git init -q .")
	text = s.call(t, GitDiff)
	require.True(t, strings.HasPrefix(text, "[the commit that this workspace started from is no longer in its repository: everything counts as new]\n\nStatus:\n"), text)
	require.Contains(t, text, "?? committed\n")
	require.NotContains(t, text, workspaces.BaseRef)
}

// ReadOnly has the tools that change nothing.
func TestReadOnly_Tools(t *testing.T) {
	s := newRoom(t)
	all, err := ReadOnly(s.manager)
	require.NoError(t, err)
	var names []string
	for _, tl := range all {
		name, _, _ := infoOf(t, tl)
		names = append(names, name)
	}
	require.True(t, slices.Equal(names, []string{ReadFile, Grep, ListFiles, GitDiff}))
}
