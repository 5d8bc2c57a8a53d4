package workspaces

import (
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func paths(list FileList) []string {
	var names []string
	for _, entry := range list.Entries {
		names = append(names, entry.Path)
	}
	return names
}

// proves C23, T9: each existing name once, raw, ignored ones and .git left out.
func TestListFiles_C23_Names(t *testing.T) {
	w := newCheckedOut(t, "gone.txt", "g\n", "c.txt", "base\n", "kept/a", "a\n", "ignored.but.tracked", "t\n", "swap", "s\n", "back/x", "x\n", ".gitignore", "node_modules\nignored*\n")
	w.sh(t, `git checkout -q -b side; echo side >c.txt; git commit -qam side; git checkout -q main; echo main >c.txt; git commit -qam main; git merge -q side >/dev/null 2>&1 || true`)
	w.write(t, "café.txt", "é\n", "new\nline.txt", "n\n", "q\"uote.txt", "q\n", " lead.txt", "l\n", ".github/w.yml", "w\n", "node_modules/x", "x\n", "\xff\xfe", "bytes\n", "trail ", "t\n")
	w.sh(t, `rm gone.txt swap; mkdir swap; echo y >swap/y; rm -r back; echo z >back; git init -q nested; echo n >nested/n
		git init -q module; cd module; git config user.name a; git config user.email a@b; git commit -q --allow-empty -m x; cd ..; git -c advice.addEmbeddedRepo=false add module; ln -s nowhere dangling`)
	list, err := ListFiles(t.Context(), w, ListOptions{})
	require.NoError(t, err)
	require.EqualValues(t, 1, w.execs.Load(), "S3")
	require.Equal(t, []string{
		" lead.txt", ".github/w.yml", ".gitignore", "back", "c.txt", "café.txt", "dangling", "ignored.but.tracked", "kept/a",
		"module", "nested", "new\nline.txt", "q\"uote.txt", "swap/y", "trail ", "\xff\xfe",
	}, paths(list))
	require.Equal(t, len(list.Entries), list.Total)
	for _, entry := range list.Entries {
		require.Equal(t, entry.Path == "module" || entry.Path == "nested", entry.Repository, entry.Path)
	}
}

// proves T9: a path is a name, whatever it looks like.
func TestListFiles_Path(t *testing.T) {
	odd := []string{":(glob)x", "-n", "[a]", "*", ":!x", "a b", "--", `b\c`, "..foo", "new\nline"}
	var files []string
	for _, name := range odd {
		files = append(files, name+"/in", "x\n")
	}
	w := newCheckedOut(t, append(files, "a/in", "x\n", ".gitignore", "out\n")...)
	w.write(t, "out/x", "x\n", "nested/x", "x\n")
	w.sh(t, `git init -q nested; ln -s a link`)
	for _, name := range odd {
		for _, path := range []string{name, name + "/in"} {
			list, err := ListFiles(t.Context(), w, ListOptions{Path: path})
			require.NoError(t, err, path)
			require.Equal(t, []string{name + "/in"}, paths(list))
			found, err := Grep(t.Context(), w, GrepOptions{Pattern: "x", Path: path})
			require.NoError(t, err, path)
			require.Equal(t, []GrepMatch{{Path: name + "/in", Line: 1, Text: "x"}}, found.Matches)
		}
		list, err := ListFiles(t.Context(), w, ListOptions{Path: name, Glob: "i*"})
		require.NoError(t, err)
		require.Equal(t, []string{name + "/in"}, paths(list), "a glob below it")
	}
	for path, want := range map[string][]string{
		".": nil, "out": {}, "out/x": {}, ".git": {}, ".git/HEAD": {}, "nested": {"nested"}, "nested/x": {}, "link": {"link"}, "link/in": {},
	} {
		list, err := ListFiles(t.Context(), w, ListOptions{Path: path})
		require.NoError(t, err, path)
		if want != nil {
			require.Equal(t, len(want), list.Total, path)
		}
		_, err = Grep(t.Context(), w, GrepOptions{Pattern: "x", Path: path})
		require.NoError(t, err, path)
	}
	for _, path := range []string{"nosuch", "a/in/x", "a/nosuch", ":(top)"} {
		_, err := ListFiles(t.Context(), w, ListOptions{Path: path})
		require.ErrorIs(t, err, fs.ErrNotExist, path)
		_, err = Grep(t.Context(), w, GrepOptions{Pattern: "x", Path: path})
		require.ErrorIs(t, err, fs.ErrNotExist, path)
	}
	for _, path := range []string{"../x", "a\x00b", "/etc"} {
		_, err := ListFiles(t.Context(), w, ListOptions{Path: path})
		require.ErrorIs(t, err, ErrInvalidInput, path)
	}
}

func TestListFiles_Glob(t *testing.T) {
	w := newCheckedOut(t, "a.go", "x\n", "a.ts", "x\n", "a.tsx", "x\n", "src/b.go", "x\n", "src/deep/c.go", "x\n", "src/deep/d.md", "x\n",
		"test/src/e.go", "x\n", "{b}", "x\n", "-n.go", "x\n", "star*", "x\n", "starry", "x\n", "src.x/[1]/f.go", "x\n")
	for _, c := range []struct {
		path, glob string
		want       []string
	}{
		{"", "*.go", []string{"-n.go", "a.go", "src.x/[1]/f.go", "src/b.go", "src/deep/c.go", "test/src/e.go"}},
		{"", "*.{ts,tsx}", []string{"a.ts", "a.tsx"}},
		{"", "{src,test/src}/*.go", []string{"src/b.go", "test/src/e.go"}},
		{"", "{b}", []string{"{b}"}},
		{"", `star\*`, []string{"star*"}},
		{"", "star*", []string{"star*", "starry"}},
		{"", "/a.go", []string{"a.go"}},
		{"", "/workspace/src/*.go", []string{"src/b.go"}},
		{"", "./a.*", []string{"a.go", "a.ts", "a.tsx"}},
		{"", "src/**", []string{"src/b.go", "src/deep/c.go", "src/deep/d.md"}},
		{"", "src/**/*.go", []string{"src/b.go", "src/deep/c.go"}},
		{"", "**/src/*.go", []string{"src/b.go", "test/src/e.go"}},
		{"", "src/*", []string{"src/b.go"}},
		{"", "-n*", []string{"-n.go"}},
		{"", ":(top)*", nil},
		{"", "[ab].go", []string{"a.go", "src/b.go"}},
		{"", "[", nil},
		{"src", "*.go", []string{"src/b.go", "src/deep/c.go"}},
		{"src", "deep/*", []string{"src/deep/c.go", "src/deep/d.md"}},
		{"src", "src/deep/*", []string{"src/deep/c.go", "src/deep/d.md"}},
		{"src.x/[1]", "*.go", []string{"src.x/[1]/f.go"}},
		{"a.go", "*.md", []string{"a.go"}},
	} {
		list, err := ListFiles(t.Context(), w, ListOptions{Path: c.path, Glob: c.glob})
		require.NoError(t, err, c)
		require.Equal(t, c.want, paths(list), c)
		found, err := Grep(t.Context(), w, GrepOptions{Pattern: "x", Path: c.path, Glob: c.glob})
		require.NoError(t, err, c)
		require.Len(t, found.Matches, len(c.want), c)
	}
	for _, glob := range []string{"../*", "a/../b", "x\x00", strings.Repeat("x", globMaxBytes+1), strings.Repeat("{a,b}", 7)} {
		_, err := ListFiles(t.Context(), w, ListOptions{Glob: glob})
		require.ErrorIs(t, err, ErrInvalidInput, glob)
	}
}

func TestListFiles_Max(t *testing.T) {
	w := newCheckedOut(t, "zz", "z\n", "aa", "a\n")
	for i := range 1500 {
		w.write(t, fmt.Sprintf("f%04d", i), "")
	}
	list, err := ListFiles(t.Context(), w, ListOptions{})
	require.NoError(t, err)
	require.Equal(t, 1502, list.Total)
	require.Len(t, list.Entries, 1000)
	require.Equal(t, "aa", list.Entries[0].Path)
	require.Equal(t, "f0998", list.Entries[999].Path)
	list, err = ListFiles(t.Context(), w, ListOptions{Max: 3})
	require.NoError(t, err)
	require.Equal(t, []string{"aa", "f0000", "f0001"}, paths(list))
	require.Equal(t, 1502, list.Total)
}

func FuzzListParser(f *testing.F) {
	f.Add([]byte("? a\x00? n/\x00K s/y\x00H 100644 1 0\ts\x00M 100644 1 1\tc\x00M 100644 1 2\tc\x00H 160000 1 0\tm\x00H 100644 1 0\tg\x00R 100644 1 0\tg\x00S 1 1 0\tx\x00"), []byte{2}, 3)
	f.Fuzz(func(t *testing.T, data, sizes []byte, limit int) {
		limit = 1 + limit&0xf
		parse := func(sizes []byte) (FileList, bool) {
			p := &listParser{max: limit}
			if chunks(p, data, sizes) != nil {
				return FileList{}, false
			}
			return p.finish(), true
		}
		whole, ok := parse(nil)
		pieces, alsoOK := parse(sizes)
		require.Equal(t, ok, alsoOK)
		require.Equal(t, whole, pieces)
		require.LessOrEqual(t, len(whole.Entries), limit)
		require.True(t, slices.IsSortedFunc(whole.Entries, func(a, b FileEntry) int { return strings.Compare(a.Path, b.Path) }))
	})
}

// What braces stand for never has more alternatives than allowed, and a glob without them is itself.
func FuzzExpandBraces(f *testing.F) {
	for _, glob := range []string{"a{b,c{d,e}}f", `\{a,b}`, "{a", "{}", "{,}", strings.Repeat("{a,b}", 30), strings.Repeat("{", 100) + ",}"} {
		f.Add(glob)
	}
	f.Fuzz(func(t *testing.T, glob string) {
		if len(glob) > globMaxBytes {
			return
		}
		globs, ok := expandBraces(glob, nil)
		require.LessOrEqual(t, len(globs), globMaxAlternatives)
		if ok && !strings.Contains(glob, "{") {
			require.Equal(t, []string{glob}, globs)
		}
		for _, g := range globs {
			require.LessOrEqual(t, len(g), len(glob))
		}
	})
}

func TestExpandBraces(t *testing.T) {
	globs, ok := expandBraces("a{b,c{d,e}}{,f}", nil)
	require.True(t, ok)
	require.Equal(t, []string{"ab", "abf", "acd", "acdf", "ace", "acef"}, globs)
}
