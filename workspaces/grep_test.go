package workspaces

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

func grep(t *testing.T, w *shellWorkspace, options GrepOptions) GrepResult {
	t.Helper()
	w.execs.Store(0)
	found, err := Grep(t.Context(), w, options)
	require.NoError(t, err)
	require.EqualValues(t, 1, w.execs.Load(), "S3")
	return found
}

// proves C19, T9: a pattern is a pattern, whatever it starts with.
func TestGrep_C19_DashPattern(t *testing.T) {
	w := newCheckedOut(t, "f", "p->next --pdf-engine -77\n")
	for pattern, matches := range map[string]int{
		"->next": 1, "--pdf-engine": 1, "-77": 1, "-e": 1, "--": 1, "-Otouch pwned": 0, "--open-files-in-pager=touch pwned": 0, ":/x": 0, "$(touch pwned)": 0,
	} {
		require.Len(t, grep(t, w, GrepOptions{Pattern: pattern}).Matches, matches, pattern)
	}
	require.False(t, w.exists("pwned"))
}

// proves C20, T9: no match is a result, a bad pattern an error with git's message.
func TestGrep_C20_Patterns(t *testing.T) {
	w := newCheckedOut(t, "f", "hit\nd\nÉtude\n")
	require.Equal(t, GrepResult{}, grep(t, w, GrepOptions{Pattern: "zzz"}))
	for _, pattern := range []string{"(", "[z-a]"} {
		_, err := Grep(t.Context(), w, GrepOptions{Pattern: pattern})
		require.ErrorIs(t, err, ErrInvalidInput)
		require.ErrorContains(t, err, "fatal: ")
	}
	for _, pattern := range []string{"", "a\nb", "a\x00", strings.Repeat("a", grepPatternBytes+1)} {
		_, err := Grep(t.Context(), w, GrepOptions{Pattern: pattern})
		require.ErrorIs(t, err, ErrInvalidInput)
	}
	require.Len(t, grep(t, w, GrepOptions{Pattern: "h.t|^d$"}).Matches, 2, "extended")
	require.Empty(t, grep(t, w, GrepOptions{Pattern: "HIT"}).Matches)
	require.Len(t, grep(t, w, GrepOptions{Pattern: "HIT", IgnoreCase: true}).Matches, 1)
	require.Len(t, grep(t, w, GrepOptions{Pattern: "^.tude$"}).Matches, 1, "a character, not a byte")
}

// proves C39, C23, T9: tracked and untracked files, raw names, nothing that is ignored or nested.
func TestGrep_C39_Files(t *testing.T) {
	w := newShellWorkspace(t)
	_, err := checkout(t.Context(), w, "", "")
	require.NoError(t, err)
	w.write(t, "a.txt", "hit\n", ".gitignore", "node_modules/\nforced\n", "node_modules/x", "hit\n", "café.txt", "hit\n", "new\nline:1:x", "hit\n", "forced", "hit\n", "nested/x", "hit\n", "crlf", "hit\r\n", "noeol", "hit")
	w.sh(t, `git add -f forced; git init -q nested; ln -s a.txt link`)
	found := grep(t, w, GrepOptions{Pattern: "hit"})
	require.Equal(t, []GrepMatch{
		{Path: "a.txt", Line: 1, Text: "hit"}, {Path: "café.txt", Line: 1, Text: "hit"}, {Path: "crlf", Line: 1, Text: "hit"}, {Path: "forced", Line: 1, Text: "hit"},
		{Path: "new\nline:1:x", Line: 1, Text: "hit"}, {Path: "noeol", Line: 1, Text: "hit"},
	}, found.Matches)
	require.False(t, found.More)
}

// proves T9: binary files and lines of megabytes are bounded, and no hit is lost to them.
func TestGrep_T9_BinaryAndLongLines(t *testing.T) {
	long := strings.Repeat("中", 700_000)
	w := newCheckedOut(t, "a.bin", "hit\x00hit\n", "b.min", "hit"+long+"\n"+long+"hit\nlast hit\n", "c\nd.bin", "\x00hit", "latin", "caf\xe9 hit\n", "late", strings.Repeat("x\n", 9000)+"hit \x00 nul\n",
		"exact", "hit"+strings.Repeat("e", 497)+"\nhit"+strings.Repeat("e", 498)+"\n", "z", "hit\n")
	found := grep(t, w, GrepOptions{Pattern: "hit"})
	require.Equal(t, []string{"a.bin", "c\nd.bin"}, found.Binaries)
	require.False(t, found.More)
	type hit struct {
		path string
		line int
		cut  bool
	}
	var hits []hit
	for _, match := range found.Matches {
		hits = append(hits, hit{match.Path, match.Line, match.Cut})
		require.True(t, utf8.ValidString(match.Text))
		require.LessOrEqual(t, utf8.RuneCountInString(match.Text), 500)
	}
	require.Equal(t, []hit{{"b.min", 1, true}, {"b.min", 2, true}, {"b.min", 3, false}, {"exact", 1, false}, {"exact", 2, true}, {"late", 9001, false}, {"latin", 1, false}, {"z", 1, false}}, hits)
	require.Equal(t, "hit"+strings.Repeat("中", 497), found.Matches[0].Text)
	require.Equal(t, "caf\uFFFD hit", found.Matches[6].Text)
}

// proves T9: what is beyond the limit is not waited for.
func TestGrep_T9_Max(t *testing.T) {
	w := newCheckedOut(t, "f", strings.Repeat("hit\n", 1000))
	found := grep(t, w, GrepOptions{Pattern: "hit"})
	require.Len(t, found.Matches, 300)
	require.True(t, found.More)
	found = grep(t, w, GrepOptions{Pattern: "hit", Max: 1000})
	require.Len(t, found.Matches, 1000)
	require.False(t, found.More)
	found = grep(t, w, GrepOptions{Pattern: "hit", Max: 999})
	require.Len(t, found.Matches, 999)
	require.True(t, found.More)

	// More binary files than there is room for: said, not hidden.
	w = newCheckedOut(t, "z", "hit\n")
	for i := range grepSpareLines + 400 {
		w.write(t, fmt.Sprintf("b%03d", i), "\x00hit")
	}
	found = grep(t, w, GrepOptions{Pattern: "hit"})
	require.Len(t, found.Binaries, grepMaxBinaries)
	require.True(t, found.More)

	// Gigabytes of matches: the search ends with the output.
	w = newCheckedOut(t)
	require.NoError(t, os.WriteFile(filepath.Join(w.root, "huge"), []byte(strings.Repeat(strings.Repeat("hit", 100)+"\n", 200_000)), 0o666))
	found = grep(t, w, GrepOptions{Pattern: "hit", Max: 2, MaxLineRunes: 5})
	require.Equal(t, []GrepMatch{{Path: "huge", Line: 1, Text: "hithi", Cut: true}, {Path: "huge", Line: 2, Text: "hithi", Cut: true}}, found.Matches)
	require.True(t, found.More)
}

// proves T9: what the user cannot read is not shown from the last commit or the index either; it is named.
func TestGrep_T9_Unreadable(t *testing.T) {
	w := newCheckedOut(t, "secret", "hit committed\n", "staged", "s\n", "same", "hit same\n", "shut/x", "hit below\n", "it's: 'odd'", "hit odd\n", "new\nline", "hit line\n", "f", "hit\n", "assumed", "hit assumed\n")
	w.write(t, "secret", "hit changed\n", "staged", "hit staged\n", "newsecret", "hit new\n", "new", "hit\n")
	w.sh(t, `git add staged; git update-index --assume-unchanged assumed; ln -s secret link`)
	withoutPermission(t, w, "secret", "staged", "same", "shut", "it's: 'odd'", "new\nline", "newsecret", "assumed")

	found := grep(t, w, GrepOptions{Pattern: "hit"})
	require.Equal(t, []GrepMatch{{Path: "f", Line: 1, Text: "hit"}, {Path: "new", Line: 1, Text: "hit"}}, found.Matches)
	require.Equal(t, []string{"assumed", "it's: 'odd'", "newsecret", "same", "secret", "shut/x", "staged"}, found.Unreadable)
	require.False(t, found.More)
	require.Equal(t, GrepResult{Matches: []GrepMatch{{Path: "new", Line: 1, Text: "hit"}}}, grep(t, w, GrepOptions{Pattern: "hit", Path: "new"}), "others are not looked at")
	require.Equal(t, GrepResult{Unreadable: []string{"secret"}}, grep(t, w, GrepOptions{Pattern: "hit", Path: "secret"}))
	_, err := Grep(t.Context(), w, GrepOptions{Pattern: "("})
	require.ErrorIs(t, err, ErrInvalidInput)
}

func TestGrep_Cancelled(t *testing.T) {
	w := newCheckedOut(t, "f", "hit\n")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := Grep(ctx, w, GrepOptions{Pattern: "hit"})
	require.Equal(t, context.Canceled, err)
}

func FuzzGrepParser(f *testing.F) {
	f.Add([]byte("a\x001\x00hit\nBinary file b matches\nnew\nline\x0022\x00x\x00y\n"), []byte{4, 1}, 2, 3)
	f.Add([]byte("Binary file x\x007:y\nBinary file c\nd matches\n"), []byte{0}, 1, 1)
	f.Fuzz(func(t *testing.T, data, sizes []byte, matches, runes int) {
		options := GrepOptions{Max: 1 + matches&0xf, MaxLineRunes: 1 + runes&0xf}
		parse := func(sizes []byte) (GrepResult, bool) {
			p := newGrepParser(options)
			err := chunks(p, data, sizes)
			return p.finish(), err == nil
		}
		whole, ok := parse(nil)
		pieces, alsoOK := parse(sizes)
		require.Equal(t, ok, alsoOK)
		require.Equal(t, whole, pieces)
		require.LessOrEqual(t, len(whole.Matches), options.Max)
		require.LessOrEqual(t, len(whole.Binaries), grepMaxBinaries)
		for _, match := range whole.Matches {
			require.True(t, utf8.ValidString(match.Text))
			require.LessOrEqual(t, utf8.RuneCountInString(match.Text), options.MaxLineRunes)
		}
	})
}
