package tools

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/carrel-dev/carrel/workspaces"
)

// proves T7, C01, C02, C06 and C10, through to the bytes on disk.
func TestEdit_T7_C01_Bytes(t *testing.T) {
	s := newRoom(t)
	for _, c := range []struct{ name, raw, old, new, want string }{
		{"C01 CRLF", "alpha\r\nbeta\r\ngamma\r\n", "alpha\nbeta", "ALPHA\nbeta2", "ALPHA\r\nbeta2\r\ngamma\r\n"},
		{"C01 mixed", "a = 1\r\nb = 2\nc = 3\r\n", "b = 2", "b = 22", "a = 1\r\nb = 22\nc = 3\r\n"},
		{"C02", "price=OLD;\n", "OLD", `$& $1 ${1} $$ \1 & %s`, "price=$& $1 ${1} $$ \\1 & %s;\n"},
		{"C06", "\xEF\xBB\xBFhello\n", "hello", "hello2", "\xEF\xBB\xBFhello2\n"},
		{"C10a", "a\nb", "a", "A", "A\nb"},
		{"C10b", "alpha\nbeta\n\n", "alpha", "ALPHA", "ALPHA\nbeta\n\n"},
		{"invalid bytes elsewhere", "\xff\xfeok\nhit\n\xe9", "hit", "HIT", "\xff\xfeok\nHIT\n\xe9"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if strings.HasPrefix(c.raw, "\xff\xfe") {
				c.raw, c.want = c.raw[1:], c.want[1:] // not UTF-16's mark
			}
			s.put(t, "f", c.raw)
			require.Contains(t, s.call(t, EditFile, "path", "f", "old_string", c.old, "new_string", c.new), "Replaced 1 match in f, at line ")
			require.Equal(t, c.want, s.file(t, "f"))
		})
	}
	t.Run("C01 C06 what read_file shows can be given back", func(t *testing.T) {
		s.put(t, "f", "\xEF\xBB\xBFone\r\ntwo\r\n")
		for _, word := range []string{"one2", "one3"} {
			content, _ := contentOf(s.call(t, ReadFile, "path", "f"))
			s.call(t, EditFile, "path", "f", "old_string", content[0]+"\n"+content[1], "new_string", word+"\n"+content[1])
		}
		require.Equal(t, "\xEF\xBB\xBFone3\r\ntwo\r\n", s.file(t, "f"))
	})
	t.Run("C01 the diff is the line alone", func(t *testing.T) {
		s.put(t, "f", "a = 1\r\nb = 2\nc = 3\r\n")
		s.call(t, Bash, "command", "git add f; git -c user.name=a -c user.email=a@b commit -qm x")
		s.call(t, EditFile, "path", "f", "old_string", "b = 2", "new_string", "b = 22")
		require.Equal(t, "1\t1\tf\n[bash: exit code 0]", s.call(t, Bash, "command", "git diff --numstat"))
	})
	t.Run("C02 every match", func(t *testing.T) {
		s.put(t, "f", "OLD OLD\n")
		require.Equal(t, "Replaced 2 matches in f, at lines 1, 1.", s.call(t, EditFile, "path", "f", "old_string", "OLD", "new_string", "$1", "replace_all", true))
		require.Equal(t, "$1 $1\n", s.file(t, "f"))
	})
}

// proves T7, C03, C04, C14 and M12: what is refused leaves the file, and tells what to do.
func TestEdit_T7_C03_Refused(t *testing.T) {
	s := newRoom(t)
	for _, c := range []struct {
		name, raw, old, new string
		all                 bool
		want                []string
	}{
		{"C03", "x = 1\nx = 1\nx = 1\n", "x = 1\nx = 1", "y", false, []string{"2 matches, at lines 1, 2", "replace_all"}},
		{"C03 aaa", "aaa", "aa", "b", false, []string{"2 matches"}},
		{"C04", "abc", "", "X", false, []string{"old_string is empty"}},
		{"C04 all", "abc", "", "X", true, []string{"old_string is empty"}},
		{"C04 on nothing", "", "", "X", true, []string{"old_string is empty"}},
		{"not found", "func f() {\n\treturn 1\n}\n", "func f() {\n    return 1\n}", "x", false, []string{"white space only", "1\tfunc f() {\n2\t\treturn 1"}},
		{"M12", "b\n", "a", "b", false, []string{"not in the file; nothing was changed. But new_string is there already, at line 1: this edit may have been applied before. Look with read_file."}},
		{"M12 and a nearest place", "return x\nthe quick brown fox\n", "the quick red fox", "return x", false, []string{"new_string is there already, at line 1", "nearest place is:\n2\tthe quick brown fox"}},
		{"C14 UTF-16", "\xff\xfeh\x00i\x00\n\x00", "h", "x", false, []string{"UTF-16 text (little endian), not UTF-8 text. It was left as it is"}},
		{"C14 UTF-16 without a mark", "h\x00i\x00\n\x00", "h", "x", false, []string{"UTF-16"}},
		{"C14 ZIP", "PK\x03\x04\x00\x01", "P", "x", false, []string{"application/zip"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s.put(t, "f", c.raw)
			s.refused(t, c.want, EditFile, "path", "f", "old_string", c.old, "new_string", c.new, "replace_all", c.all)
			require.Equal(t, c.raw, s.file(t, "f"))
		})
	}
	t.Run("C03 with replace_all from left to right", func(t *testing.T) {
		s.put(t, "f", "x = 1\nx = 1\nx = 1\n")
		require.Equal(t, "Replaced 1 match in f, at line 1.", s.call(t, EditFile, "path", "f", "old_string", "x = 1\nx = 1", "new_string", "y", "replace_all", "true"))
		require.Equal(t, "y\nx = 1\n", s.file(t, "f"))
	})
	s.refused(t, []string{"does not exist", "list_files"}, EditFile, "path", "nosuch", "old_string", "a", "new_string", "b")
	s.refused(t, []string{"is a directory"}, EditFile, "path", ".", "old_string", "a", "new_string", "b")
}

// proves T7 and C07: modes stay, a new file has 0644.
func TestFiles_C07_Modes(t *testing.T) {
	s := newRoom(t)
	s.put(t, "run.sh", "#!/bin/sh\n", "k.env", "A=1\n")
	root := s.root(t)
	mode := func(name string) os.FileMode {
		info, err := os.Stat(filepath.Join(root, name))
		require.NoError(t, err)
		return info.Mode()
	}
	require.NoError(t, os.Chmod(filepath.Join(root, "run.sh"), 0o755))
	require.NoError(t, os.Chmod(filepath.Join(root, "k.env"), 0o600))
	s.call(t, EditFile, "path", "run.sh", "old_string", "/bin/sh", "new_string", "/bin/bash")
	s.call(t, EditFile, "path", "k.env", "old_string", "1", "new_string", "2")
	require.EqualValues(t, 0o755, mode("run.sh"))
	require.EqualValues(t, 0o600, mode("k.env"))
	s.call(t, WriteFile, "path", "run.sh", "content", "x")
	s.call(t, WriteFile, "path", "k.env", "content", "x")
	s.call(t, WriteFile, "path", "new/file", "content", "x")
	require.EqualValues(t, 0o755, mode("run.sh"))
	require.EqualValues(t, 0o600, mode("k.env"))
	require.EqualValues(t, 0o644, mode("new/file"))
}

// proves T6 and C09: edits of one file in one step all apply, however its path is spelled.
func TestFiles_T6_C09_Parallel(t *testing.T) {
	s := newRoom(t)
	var lines bytes.Buffer
	for i := range 100 {
		fmt.Fprintln(&lines, i+1)
	}
	s.put(t, "n.txt", lines.String())
	root := s.root(t)
	require.NoError(t, os.Symlink("n.txt", filepath.Join(root, "link")))
	require.NoError(t, os.Symlink(".", filepath.Join(root, "here")))
	want := strings.NewReplacer("\n50\n", "\nFIFTY\n", "\n75\n", "\nSEVENTYFIVE\n", "\n25\n", "\nTWENTYFIVE\n", "\n10\n", "\nTEN\n", "\n90\n", "\nNINETY\n", "\n60\n", "\nSIXTY\n").Replace(lines.String())
	edits := []struct{ path, old, new string }{
		{"n.txt", "\n50\n", "\nFIFTY\n"}, {"./n.txt", "\n75\n", "\nSEVENTYFIVE\n"}, {"/workspace/n.txt", "\n25\n", "\nTWENTYFIVE\n"},
		{"link", "\n10\n", "\nTEN\n"}, {"here/n.txt", "\n90\n", "\nNINETY\n"}, {root + "/n.txt", "\n60\n", "\nSIXTY\n"},
	}
	for round := range 200 {
		s.put(t, "n.txt", lines.String())
		var wg sync.WaitGroup
		results := make([]string, len(edits))
		for i, edit := range edits {
			wg.Go(func() {
				results[i], _ = s.tools[EditFile].InvokableRun(s.ctx, args{"path", edit.path, "old_string", edit.old, "new_string", edit.new}.String())
			})
		}
		wg.Wait()
		require.Equal(t, want, s.file(t, "n.txt"), "round %d", round)
		for _, result := range results {
			require.Contains(t, result, "Replaced 1 match in ")
		}
	}

	// A write in the same step is before or after an edit, never between its read and its write.
	for range 20 {
		s.put(t, "n.txt", "old\n")
		var wg sync.WaitGroup
		wg.Go(func() {
			_, _ = s.tools[WriteFile].InvokableRun(s.ctx, args{"path", "link", "content", "old and more\n"}.String())
		})
		wg.Go(func() {
			_, _ = s.tools[EditFile].InvokableRun(s.ctx, args{"path", "n.txt", "old_string", "old", "new_string", "new"}.String())
		})
		wg.Wait()
		require.Contains(t, []string{"new and more\n", "old and more\n"}, s.file(t, "n.txt"))
	}
}

// proves T3, W14, C10 and C18: content arrives byte for byte, whatever it is; too much of it is refused.
func TestWrite_C18_Content(t *testing.T) {
	s := newRoom(t)
	for name, content := range map[string]string{
		"200 KB":          strings.Repeat("a", 200_000),
		"awkward":         "it's \"$HOME\" `id` $(id)\nEOF\n'EOF'\na\\nb\n%s",
		"C10c":            "    caf\u00e9\r\n    second\r\n\r\n",
		"1 MiB":           strings.Repeat("m", workspaces.FileMaxBytes),
		"empty":           "",
		"NUL and control": "a\x00b\x1b[31m\u2028",
	} {
		t.Run(name, func(t *testing.T) {
			path := "dir with space/q'uote\"/" + name + "/-n.txt"
			require.Equal(t, fmt.Sprintf("Wrote %d bytes to %s.", len(content), path), s.call(t, WriteFile, "path", path, "content", content))
			require.Equal(t, sha256.Sum256([]byte(content)), sha256.Sum256([]byte(s.file(t, path))))
		})
	}
	s.refused(t, []string{"1048577 characters, at most 1048576"}, WriteFile, "path", "big", "content", strings.Repeat("m", workspaces.FileMaxBytes+1))
	s.refused(t, []string{"too large", "bash"}, WriteFile, "path", "big", "content", strings.Repeat("é", workspaces.FileMaxBytes/2+1))
	s.refused(t, []string{`"new/" names a directory`}, WriteFile, "path", "new/", "content", "x")
	for _, name := range []string{"big", "new"} {
		require.NoFileExists(t, filepath.Join(s.root(t), name))
	}
}

// proves R3 and C16: nothing beside the workspace is opened; odd names are ordinary.
func TestFiles_C16_Paths(t *testing.T) {
	s := newRoom(t)
	root := s.root(t)
	evil := root + "-evil"
	require.NoError(t, os.Mkdir(evil, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(evil, "x"), []byte("evil\n"), 0o644))
	outside := []string{"../" + filepath.Base(evil) + "/x", "/workspace/../" + filepath.Base(evil) + "/x", evil + "/x", "/workspace-evil/x", "/etc/passwd", "sub/../../x", "a\x00b", ""}
	for _, path := range outside {
		s.refused(t, nil, ReadFile, "path", path)
		s.refused(t, nil, WriteFile, "path", path, "content", "x")
		s.refused(t, nil, EditFile, "path", path, "old_string", "evil", "new_string", "x")
		s.refused(t, nil, Grep, "pattern", "evil", "path", path)
		s.refused(t, nil, ListFiles, "path", path)
	}
	content, err := os.ReadFile(filepath.Join(evil, "x"))
	require.NoError(t, err)
	require.Equal(t, "evil\n", string(content))
	for path, name := range map[string]string{"/workspace/sub/../b.txt": "b.txt", "./c.txt": "c.txt", "d.txt": "d.txt", "..foo": "..foo", "-n": "-n", ":(top)x": ":(top)x", "[a]": "[a]", "new\nline": "new\nline"} {
		s.call(t, WriteFile, "path", path, "content", path)
		require.Equal(t, path, s.file(t, name))
		s.call(t, EditFile, "path", path, "old_string", path, "new_string", "found it")
		require.Contains(t, s.call(t, ReadFile, "path", path), "1\tfound it")
		require.Equal(t, name+":1:found it", s.call(t, Grep, "pattern", "found it", "path", path))
		require.Equal(t, name, s.call(t, ListFiles, "path", path))
	}
}

// proves W15 and C17: no tool writes or reads through a link that leaves the workspace.
func TestFiles_C17_Links(t *testing.T) {
	s := newRoom(t)
	root, out := s.root(t), t.TempDir()
	victim := filepath.Join(out, "victim.txt")
	require.NoError(t, os.WriteFile(victim, []byte("original"), 0o644))
	s.put(t, "inside/f", "in\n")
	for link, to := range map[string]string{"notes.md": victim, "draft.txt": filepath.Join(out, "new.txt"), "sub": out, "in": "inside/f"} {
		require.NoError(t, os.Symlink(to, filepath.Join(root, link)))
	}
	for _, path := range []string{"notes.md", "draft.txt", "sub/a.txt", "sub/n/b.txt"} {
		s.refused(t, nil, WriteFile, "path", path, "content", "x")
	}
	s.refused(t, nil, EditFile, "path", "notes.md", "old_string", "original", "new_string", "x")
	text := s.refused(t, nil, ReadFile, "path", "notes.md")
	require.NotContains(t, text, "original")
	require.Equal(t, "No matches.", s.call(t, Grep, "pattern", "original"))
	content, err := os.ReadFile(victim)
	require.NoError(t, err)
	require.Equal(t, "original", string(content))
	entries, err := os.ReadDir(out)
	require.NoError(t, err)
	require.Len(t, entries, 1)
	s.call(t, EditFile, "path", "in", "old_string", "in", "new_string", "IN")
	require.Equal(t, "IN\n", s.file(t, "inside/f"))
}

// proves T11: no file tool writes below .git, by any spelling or link, however new the path.
func TestFiles_T11_Git(t *testing.T) {
	s := newRoom(t)
	root := s.root(t)
	s.put(t, "sub/.git/config", "x\n", "d/keep", "x\n")
	for link, to := range map[string]string{"g": ".git", "config": ".git/config", "d/up": "../.git/hooks", "two": "g", "abs": filepath.Join(root, ".git", "config")} {
		require.NoError(t, os.Symlink(to, filepath.Join(root, link)))
	}
	before := s.call(t, Bash, "command", "cd .git && find . -type f ! -name index | sort | xargs sha1sum; ls -A hooks 2>/dev/null")
	for _, path := range []string{
		".git/config", "./.git/config", "/workspace/.git/hooks/post-checkout", root + "/.git/config", "d/../.git/config", ".GIT/config", ".git/new/file", ".git/", ".git",
		"sub/.git/config", "sub/.git/hooks/x", "d/.git/new", "g/config", "config", "d/up/pre-commit", "two/config", "two/new/deep", "abs", "newdir/.git",
	} {
		s.refused(t, nil, WriteFile, "path", path, "content", "evil")
		s.refused(t, nil, EditFile, "path", path, "old_string", "x", "new_string", "evil")
		s.refused(t, nil, EditFile, "path", path, "old_string", "core", "new_string", "evil", "replace_all", true)
	}
	require.Equal(t, before, s.call(t, Bash, "command", "cd .git && find . -type f ! -name index | sort | xargs sha1sum; ls -A hooks 2>/dev/null"))
	require.Equal(t, "x\n", s.file(t, "sub/.git/config"))
	require.NoDirExists(t, filepath.Join(root, "newdir"))
	s.refused(t, []string{"belongs to git's own files (.git), which file tools do not write. Use git commands in bash"}, WriteFile, "path", "config", "content", "x")
	require.Contains(t, s.call(t, ReadFile, "path", ".git/HEAD"), "ref: refs/heads/main")
	s.call(t, WriteFile, "path", ".gitignore", "content", "x\n")
	s.call(t, WriteFile, "path", ".github/w.yml", "content", "x\n")
}

// proves T8, C11 and C12 through the tool.
func TestRead_T8_C11_Pages(t *testing.T) {
	s := newRoom(t)
	s.put(t, "long", strings.Repeat("a", 70_000)+"\ntail\n", "wide", strings.Repeat("中", 70_000), "blank", "x\n\n\n\ny\n", "empty", "", "cjk", strings.Repeat(strings.Repeat("中", 100)+"\n", 300))
	content, notes := contentOf(s.call(t, ReadFile, "path", "long"))
	require.Len(t, content[0], 65_536)
	require.Contains(t, notes[0], "cut inside")
	require.Equal(t, "2\ttail\n[lines 2-2 of 2]", s.call(t, ReadFile, "path", "long", "start_line", 2, "end_line", "2"))
	for _, name := range []string{"long", "wide"} {
		// The command that the note shows gives what is missing.
		page := s.call(t, ReadFile, "path", name)
		_, command, _ := strings.Cut(page, "see more with bash: ")
		command, _, _ = strings.Cut(command, "]")
		text := s.call(t, Bash, "command", command)
		require.True(t, strings.HasPrefix(s.file(t, name)[len(strings.TrimPrefix(strings.SplitN(page, "\n", 2)[0], "1\t")):], strings.SplitN(text, "\n", 2)[0]))
		require.NotEmpty(t, strings.SplitN(text, "\n", 2)[0])
	}
	content, notes = contentOf(s.call(t, ReadFile, "path", "cjk"))
	require.Len(t, content, 300)
	require.Empty(t, notes)
	require.Equal(t, "2\t\n3\t\n4\t\n[lines 2-4 of 5]", s.call(t, ReadFile, "path", "blank", "start_line", 2, "end_line", 4.0))
	require.Equal(t, "[blank has 5 lines; line 10 is past its end]", s.call(t, ReadFile, "path", "blank", "start_line", 10, "end_line", 20))
	require.Equal(t, "[empty is empty: 0 lines]", s.call(t, ReadFile, "path", "empty"))
	s.refused(t, []string{"end_line 2 is before start_line 5"}, ReadFile, "path", "blank", "start_line", 5, "end_line", 2)
	s.refused(t, []string{"start_line is 0, the minimum is 1"}, ReadFile, "path", "blank", "start_line", 0)
}

// proves T8 and C14: binary and UTF-16 are refused and named, and show neither NUL nor U+FFFD; above 1 MiB there is a way.
func TestRead_T8_C14_Refused(t *testing.T) {
	s := newRoom(t)
	s.put(t, "u16.txt", "\xff\xfeh\x00i\x00\n\x00", "u16nobom.txt", "h\x00i\x00\n\x00", "x.zip", "PK\x03\x04\x00\x01", "it's big", strings.Repeat(strings.Repeat("b", 99)+"\n", 20_000))
	for name, want := range map[string]string{"u16.txt": "UTF-16", "u16nobom.txt": "UTF-16", "x.zip": "binary"} {
		text := s.refused(t, []string{want, "not UTF-8 text", "bash"}, ReadFile, "path", name)
		require.False(t, strings.ContainsAny(text, "\x00\uFFFD"))
	}
	text := s.refused(t, []string{"it's big has 2000000 bytes", "at most 1048576"}, ReadFile, "path", "it's big", "start_line", 11, "end_line", 12)
	_, command, _ := strings.Cut(text, "See a part with bash: ")
	line := strings.Repeat("b", 99) + "\n"
	require.Equal(t, line+line+"[bash: exit code 0]", s.call(t, Bash, "command", strings.TrimSuffix(command, ".")))
	s.refused(t, []string{"does not exist", "list_files"}, ReadFile, "path", "missing")
	s.refused(t, []string{"is a directory"}, ReadFile, "path", ".")
	s.call(t, Bash, "command", "mkfifo pipe")
	s.refused(t, []string{"named pipe"}, ReadFile, "path", "pipe")
}
