package workspaces

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func changes(t *testing.T, w *shellWorkspace) Changed {
	t.Helper()
	w.execs.Store(0)
	changed, err := Changes(t.Context(), w, ChangesOptions{})
	require.NoError(t, err)
	require.EqualValues(t, 1, w.execs.Load(), "S3")
	return changed
}

func patch(t *testing.T, w *shellWorkspace) string {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, Diff(t.Context(), w, &b))
	return b.String()
}

// proves C43: untracked files are in the diff, and the index is as before, also with a stale lock and staged parts.
func TestChanges_C43_Untracked(t *testing.T) {
	w := newCheckedOut(t, "f", "one\ntwo\n", ".gitignore", "node_modules/\n", "script", "x\n", "gone", "gone\n", "moved", strings.Repeat("moved\n", 9))
	w.write(t, "f", "one\nstaged\n")
	w.git(t, "add", "f")
	w.write(t, "f", "one\nstaged\nmore\n", "new.txt", "hi\n", "newd/a", "a\n", "b.bin", "a\x00b", "node_modules/x", "x\n", "empty", "", "café \"x\".txt", "é\n", "new\nline.txt", "l\n")
	w.sh(t, `chmod +x script; rm gone; git mv moved elsewhere; ln -s f link; : >.git/index.lock`)
	before, status := w.tree(t), w.git(t, "status", "--short", "-uall")
	changed := changes(t, w)
	require.Equal(t, before, w.tree(t), "nothing of the repository is touched")
	require.Equal(t, status, w.git(t, "status", "--short", "-uall"))

	require.Equal(t, []string{
		"MM f", " D gone", "R  moved -> elsewhere", " M script", "?? b.bin", "?? café \"x\".txt", "?? empty", "?? link", "?? new.txt", `?? "new\nline.txt"`, "?? newd/a", "",
	}, sortedStatus(changed.Status))
	require.Contains(t, changed.Diff, "diff --git a/f b/f\n")
	require.Contains(t, changed.Diff, " one\n-two\n+staged\n+more\n")
	require.Contains(t, changed.Diff, "+++ b/new.txt\n@@ -0,0 +1 @@\n+hi\n")
	require.Contains(t, changed.Diff, "+++ b/newd/a\n")
	require.Contains(t, changed.Diff, "Binary files /dev/null and b/b.bin differ\n")
	require.Contains(t, changed.Diff, "diff --git a/script b/script\nold mode 100644\nnew mode 100755\n")
	require.Contains(t, changed.Diff, "diff --git a/empty b/empty\nnew file mode 100644\n")
	require.Contains(t, changed.Diff, "new file mode 120000\n")
	require.Contains(t, changed.Diff, "rename from moved\nrename to elsewhere\n")
	require.Contains(t, changed.Diff, "deleted file mode 100644\n")
	require.Contains(t, changed.Diff, `diff --git "a/new\nline.txt" "b/new\nline.txt"`)
	require.NotContains(t, changed.Diff, "node_modules")
	require.Empty(t, changed.Omitted)
	require.False(t, changed.BaseLost)
}

// sortedStatus are the lines of a status, tracked files first, which is git's order in all versions.
func sortedStatus(status string) []string {
	lines := strings.Split(status, "\n")
	end := len(lines) - 1
	slices.SortStableFunc(lines[:end], func(a, b string) int {
		untracked := func(s string) bool { return strings.HasPrefix(s, "??") }
		if untracked(a) != untracked(b) {
			return map[bool]int{true: 1, false: -1}[untracked(a)]
		}
		return strings.Compare(strings.TrimLeft(a[3:], `"`), strings.TrimLeft(b[3:], `"`))
	})
	return lines
}

// proves W20: the patch is whole: applied to the base it gives what the run left, binary files included.
func TestDiff_W20_Applies(t *testing.T) {
	w := newCheckedOut(t, "f", "one\ntwo\n", "gone", "gone\n", "big", strings.Repeat("line\n", 60_000), "b.bin", "a\x00b", "crlf", "a\r\nb\r\n", "latin", "caf\xe9\n", "type", "x\n")
	w.write(t, "committed", "c\n")
	w.git(t, "add", "committed")
	w.git(t, "commit", "-qm", "work")
	w.write(t, "f", "one\n2\n", "big", strings.Repeat("other\n", 60_000), "b.bin", "a\x00c", "new.bin", "\x00\x01\x02", "empty", "", "crlf", "a\r\nc\r\n", "latin", "caf\xe9s\n", "dir/new", "n")
	w.sh(t, `rm gone type; ln -s f type; chmod +x f`)
	text := patch(t, w)
	require.Greater(t, len(text), 2*OutputMaxBytes)

	other := newShellWorkspace(t)
	other.git(t, "clone", "-q", w.root, ".")
	other.git(t, "checkout", "-q", w.info.Commit)
	file := filepath.Join(t.TempDir(), "patch")
	require.NoError(t, os.WriteFile(file, []byte(text), 0o666))
	other.git(t, "apply", file)
	require.Equal(t, w.sh(t, `find . -path ./.git -prune -o -type f -print0 | sort -z | xargs -0 sha256sum; stat -c %A f type`),
		other.sh(t, `find . -path ./.git -prune -o -type f -print0 | sort -z | xargs -0 sha256sum; stat -c %A f type`))
}

// proves C45, C3: no setting of the repository or the environment changes a byte or runs anything.
func TestGit_C3_C45_HostileSettings(t *testing.T) {
	w := newCheckedOut(t, "f.txt", "hit\n", "keep", "k\n", "sub/x.go", "hat\n")
	w.write(t, ".gitattributes", "*.txt diff=foo filter=x\n", "f.txt", "hit\nhot\n", "n.txt", "hut\n", "z", "last\n")
	nested := filepath.Join(w.root, "nested")
	w.sh(t, `git init -q nested; cd nested; git config core.fsmonitor "touch $WORKDIR/pwned-nested"; echo hit >x`)
	submodule := w.sh(t, `git init -q module; cd module; git config user.name a; git config user.email a@b; git commit -q --allow-empty -m x; git rev-parse HEAD`)
	w.git(t, "update-index", "--add", "--cacheinfo", "160000,"+submodule+",module")
	w.sh(t, `cd module; git config core.fsmonitor "touch ../pwned-module"; git config status.showUntrackedFiles all; echo dirty >x`)
	require.DirExists(t, nested)

	type seen struct {
		changed Changed
		patch   string
		list    FileList
		found   GrepResult
	}
	look := func() (s seen) {
		var err error
		s.changed = changes(t, w)
		s.patch = patch(t, w)
		s.list, err = ListFiles(t.Context(), w, ListOptions{})
		require.NoError(t, err)
		s.found, err = Grep(t.Context(), w, GrepOptions{Pattern: "h.t", Glob: "*.txt"})
		require.NoError(t, err)
		return s
	}
	plain := look()
	require.Contains(t, plain.changed.Status, "?? n.txt\n")
	require.NotContains(t, plain.changed.Status, "##")
	require.Contains(t, plain.changed.Diff, "diff --git a/f.txt b/f.txt\n")
	require.NotContains(t, plain.changed.Diff, "\x1b")
	require.Equal(t, []GrepMatch{{Path: "f.txt", Line: 1, Text: "hit"}, {Path: "f.txt", Line: 2, Text: "hot"}, {Path: "n.txt", Line: 1, Text: "hut"}}, plain.found.Matches)
	hostileSettings(t, w)
	require.Equal(t, plain, look())
	noneRan(t, w)
}

// proves C39: before the first commit everything is new, with all its lines.
func TestChanges_C39_NoCommit(t *testing.T) {
	w := newShellWorkspace(t)
	_, err := checkout(t.Context(), w, "", "")
	require.NoError(t, err)
	changed := changes(t, w)
	require.Equal(t, Changed{}, changed)
	require.Empty(t, patch(t, w))

	w.write(t, "a.txt", "hit\n", "f", "l1\n", ".gitignore", "node_modules/\n", "node_modules/x", "hit\n")
	w.sh(t, `git add f; echo l2 >>f`)
	changed = changes(t, w)
	require.Equal(t, "AM f\n?? .gitignore\n?? a.txt\n", changed.Status)
	require.Contains(t, changed.Diff, "+l1\n+l2\n")
	require.Contains(t, changed.Diff, "+++ b/a.txt\n")
	w.git(t, "commit", "-qm", "first")
	require.Equal(t, "AM f\n?? .gitignore\n?? a.txt\n", changes(t, w).Status, "a commit of the run does not hide its work")
}

// proves T9's and C3's odd repositories: whatever became of .git, there is an answer.
func TestChanges_OddRepositories(t *testing.T) {
	base := func(t *testing.T) *shellWorkspace {
		return newCheckedOut(t, "f", "one\n", "d/g", "g\n", ".gitignore", "ignored\n")
	}
	const edited = " M f\n?? new\n"
	edit := func(t *testing.T, w *shellWorkspace) { w.write(t, "f", "two\n", "new", "n\n") }

	for name, script := range map[string]string{
		"split index":             `git update-index --split-index; git status >/dev/null`,
		"index of version 4":      `git update-index --index-version 4`,
		"untracked cache":         `git update-index --force-untracked-cache; git status >/dev/null`,
		"assumed to be unchanged": `git update-index --assume-unchanged f`,
		"skipped":                 `git update-index --skip-worktree f`,
		"no index":                `rm .git/index`,
		"broken index":            `echo broken >.git/index`,
		"index is a pipe":         `rm .git/index; mkfifo .git/index`,
		"index is a directory":    `rm .git/index; mkdir .git/index`,
		"broken configuration":    `echo '[broken' >.git/config`,
		"unknown extension":       `git config core.repositoryFormatVersion 1; git config extensions.odd 1`,
		"no HEAD":                 `rm .git/HEAD`,
		"no refs":                 `rm -rf .git/refs .git/packed-refs; mkdir .git/refs`,
		"packed":                  `git gc -q --prune=now`,
		".git is a link":          `mv .git ../real; ln -s ../real .git`,
		"locked":                  `: >.git/index.lock; : >.git/HEAD.lock`,
		"ignored by exclude":      `mkdir -p .git/info; echo also >.git/info/exclude; echo x >also`,
	} {
		t.Run(name, func(t *testing.T) {
			w := base(t)
			w.sh(t, script)
			edit(t, w)
			changed := changes(t, w)
			require.Equal(t, edited, changed.Status)
			require.Contains(t, changed.Diff, "-one\n+two\n")
			require.Contains(t, changed.Diff, "+++ b/new\n")
			require.Equal(t, 2, strings.Count(changed.Diff, "diff --git"))
			require.Contains(t, patch(t, w), "-one\n+two\n")
			found, err := Grep(t.Context(), w, GrepOptions{Pattern: "two|^n"})
			require.NoError(t, err)
			require.Equal(t, []GrepMatch{{Path: "f", Line: 1, Text: "two"}, {Path: "new", Line: 1, Text: "n"}}, found.Matches)
			list, err := ListFiles(t.Context(), w, ListOptions{})
			require.NoError(t, err)
			require.Equal(t, []string{".gitignore", "d/g", "f", "new"}, paths(list))
		})
	}

	for name, script := range map[string]string{
		".git removed":   `rm -rf .git`,
		".git is a file": `rm -rf .git; echo 'gitdir: /nonexistent' >.git`,
		".git is a pipe": `rm -rf .git; mkfifo .git`,
		".git is a loop": `rm -rf .git; ln -s .git .git`,
		"begun anew":     `rm -rf .git; git init -q`,
		"no objects":     `rm -rf .git/objects/*`,
	} {
		t.Run(name, func(t *testing.T) {
			w := base(t)
			w.sh(t, script)
			edit(t, w)
			changed := changes(t, w)
			require.True(t, changed.BaseLost)
			require.Contains(t, changed.Status, " new\n")
			require.Contains(t, changed.Diff, "+++ b/d/g\n")
			require.ErrorIs(t, Diff(t.Context(), w, new(bytes.Buffer)), fs.ErrNotExist)
			list, err := ListFiles(t.Context(), w, ListOptions{})
			require.NoError(t, err)
			require.Equal(t, []string{".gitignore", "d/g", "f", "new"}, paths(list))
			found, err := Grep(t.Context(), w, GrepOptions{Pattern: "two"})
			require.NoError(t, err)
			require.Len(t, found.Matches, 1)
		})
	}

	t.Run("sha256", func(t *testing.T) {
		w := newShellWorkspace(t)
		w.sh(t, `git init -q --object-format=sha256; git config user.name a; git config user.email a@b; echo one >f; git add f; git commit -qm x`)
		w.info.Commit = w.git(t, "rev-parse", "HEAD")
		edit(t, w)
		changed := changes(t, w)
		require.Equal(t, edited, changed.Status)
		require.Contains(t, changed.Diff, "-one\n+two\n")
	})
}

// What a run can do to files besides editing them.
func TestChanges_FileKinds(t *testing.T) {
	w := newCheckedOut(t, "file", "f\n", "dir/x", "x\n", "conflict", "base\n", "crlf.txt", "a\nb\n", "forced", "i\n", ".gitignore", "forced\n", "kept", "k\n", "cached", "c\n")
	// A merge in conflict, a file and a directory that change places, and a nested repository.
	w.sh(t, `git checkout -q -b side; echo side >conflict; git commit -qam side; git checkout -q main; echo main >conflict; git commit -qam main; git merge -q side >/dev/null 2>&1 || true
		rm file; mkdir file; echo y >file/y; rm -r dir; echo z >dir
		git rm -q --cached cached; echo 2 >>forced; touch kept
		printf 'a\r\nb\r\n' >crlf.txt; echo '*.txt text' >.gitattributes
		git init -q nested; echo n >nested/n; mkdir -p odd/.GIT; echo o >odd/.GIT/o; mkdir 'x .git'; echo o >'x .git/o'; echo back >'back\slash'; echo g >git~1; mkfifo pipe`)
	changed := changes(t, w)
	require.Equal(t, []string{
		"D  cached", "UU conflict", " M crlf.txt", " D dir/x", " D file", " M forced",
		"?? .gitattributes", `?? back\slash`, "?? cached", "?? dir", "?? file/y", "?? git~1", "?? nested/", "?? odd/.GIT/o", "?? x .git/o", "",
	}, sortedStatus(changed.Status))
	for _, name := range []string{"conflict", "dir", "dir/x", "file", "file/y", "forced", ".gitattributes", "git~1", "x .git/o"} {
		require.Contains(t, changed.Diff, "diff --git a/"+name+" b/"+name+"\n")
	}
	require.Contains(t, changed.Diff, "+<<<<<<< HEAD\n")
	for _, name := range []string{"nested", "crlf", "kept", "cached"} {
		require.NotContains(t, changed.Diff, name)
	}
	require.Empty(t, changed.Omitted)
}

// withoutPermission takes every permission off files and directories. What root runs, for whom that changes nothing,
// goes on as the user nobody, who then owns the workspace.
func withoutPermission(t *testing.T, w *shellWorkspace, names ...string) {
	t.Helper()
	if os.Geteuid() == 0 {
		const nobody = 65534
		w.uid = nobody
		dir := filepath.Dir(w.root)
		for path := dir; path != os.TempDir() && path != "/"; path = filepath.Dir(path) {
			require.NoError(t, os.Chmod(path, 0o777))
		}
		require.NoError(t, filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
			return errors.Join(err, os.Lchown(path, nobody, nobody))
		}))
	}
	for _, name := range names {
		path := filepath.Join(w.root, name)
		require.NoError(t, os.Chmod(path, 0))
		t.Cleanup(func() { require.NoError(t, os.Chmod(path, 0o700)) })
	}
}

// proves T9, C43: a file that cannot be read is named; it does not take the others with it.
func TestChanges_Unreadable(t *testing.T) {
	w := newCheckedOut(t, "secret", "s\n", "f", "one\n", "shut/x", "x\n", "link", "")
	w.write(t, "secret", "changed\n", "f", "two\n", "new", "n\n", "newsecret", "n\n", "shutdir/y", "y\n")
	w.sh(t, `rm link; ln -s newsecret link`)
	withoutPermission(t, w, "secret", "newsecret", "shut", "shutdir")
	changed := changes(t, w)
	require.Contains(t, changed.Status, " M secret\n")
	require.Contains(t, changed.Status, "?? newsecret\n")
	require.Contains(t, changed.Diff, "-one\n+two\n")
	require.Contains(t, changed.Diff, "+++ b/new\n")
	require.Equal(t, []string{"secret", "newsecret"}, changed.Unreadable)
	require.Empty(t, changed.Omitted)
	var b bytes.Buffer
	err := Diff(t.Context(), w, &b)
	require.ErrorIs(t, err, fs.ErrPermission)
	require.ErrorContains(t, err, "newsecret")
	require.Contains(t, b.String(), "-one\n+two\n")
	list, err := ListFiles(t.Context(), w, ListOptions{})
	require.NoError(t, err)
	require.Subset(t, paths(list), []string{"f", "link", "new", "newsecret", "secret"})
}

// The status is never cut; the diff is, between files, and says what it lacks.
func TestChanges_Cut(t *testing.T) {
	w := newCheckedOut(t)
	for i := range 1000 {
		w.write(t, fmt.Sprintf("many/%04d", i), strings.Repeat(fmt.Sprintf("%d\n", i), 10))
	}
	w.write(t, "big", strings.Repeat("big\n", OutputMaxBytes), "zlast", "z\n")
	changed := changes(t, w)
	require.Equal(t, 1002, strings.Count(changed.Status, "\n"))
	require.LessOrEqual(t, len(changed.Diff), OutputMaxBytes)
	require.Equal(t, "big", changed.Omitted[0])
	require.Equal(t, 1002, strings.Count(changed.Diff, "diff --git ")+len(changed.Omitted))
	require.True(t, strings.HasPrefix(changed.Diff, "diff --git a/many/0000 "))
	require.True(t, strings.HasSuffix(changed.Diff, "\n"))
	for _, name := range changed.Omitted {
		require.NotContains(t, changed.Diff, "b/"+name+"\n")
	}
}

// A file's diff of more than is ever read is left out, and all after it.
func TestChanges_CutEarly(t *testing.T) {
	w := newCheckedOut(t)
	w.write(t, "a", "a\n", "huge", strings.Repeat("0123456789abcdef\n", diffReadBytes/16), "z", "z\n")
	changed := changes(t, w)
	require.Equal(t, []string{"huge", "z"}, changed.Omitted)
	require.Equal(t, 1, strings.Count(changed.Diff, "diff --git "))
	require.Equal(t, "?? a\n?? huge\n?? z\n", changed.Status)
}

// A failing writer ends Diff with its error, the context with its own.
func TestDiff_Ends(t *testing.T) {
	w := newCheckedOut(t, "f", "one\n")
	w.write(t, "f", strings.Repeat("two\n", 500_000))
	full := errors.New("disk full")
	require.Equal(t, full, Diff(t.Context(), w, failingWriter{full}))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.Equal(t, context.Canceled, Diff(ctx, w, new(bytes.Buffer)))
	_, err := Changes(ctx, w, ChangesOptions{})
	require.Equal(t, context.Canceled, err)
	w.info.Commit = "--output=pwned"
	require.Error(t, Diff(t.Context(), w, new(bytes.Buffer)))
	require.False(t, w.exists("pwned"))
}

type failingWriter struct{ err error }

func (w failingWriter) Write([]byte) (int, error) { return 0, w.err }

// However git's output is cut up in transport, the answer is the same, and bounded.
func FuzzChangesParser(f *testing.F) {
	const raw = ":100644 100644 1 2 M\x00f\x00:100644 120000 1 2 T\x00l\x00:100644 100644 1 1 R100\x00a\x00b\x00\x00"
	f.Add([]byte("base\x00 M f\x00R  b\x00a\x00?? x y\x00\x00\x00"+raw+"diff --git a/f b/f\n+x\ndiff --git a/l b/l\n-f\ndiff --git a/l b/l\n+f\ndiff --git a/a b/b\n"), []byte{3, 1}, 40)
	f.Add([]byte("none\x00\x00secret\x00\x00"), []byte{}, 100)
	f.Add([]byte("lost\x00?? x\x00\x00\x00:0 1 2 3 A\x00x\x00\x00diff --git a/x b/x\n"), []byte{0}, 9)
	f.Fuzz(func(t *testing.T, data, sizes []byte, limit int) {
		parse := func(sizes []byte) (Changed, bool) {
			p := &changesParser{patch: patchCutter{max: 1 + limit&0xff}, limit: 1 << 20}
			if err := chunks(p, data, sizes); err != nil {
				return Changed{}, false
			}
			changed, err := p.finish()
			return changed, err == nil
		}
		whole, ok := parse(nil)
		pieces, alsoOK := parse(sizes)
		require.Equal(t, ok, alsoOK)
		if ok {
			require.Equal(t, whole, pieces)
			require.LessOrEqual(t, len(whole.Diff), 1+limit&0xff)
		}
	})
}

// quotePath is what git does, which has to say so itself.
func TestQuotePath(t *testing.T) {
	var names []string
	for c := 1; c < 256; c++ {
		if c != '/' {
			names = append(names, "x"+string([]byte{byte(c)})+"y")
		}
	}
	w := newCheckedOut(t)
	for _, name := range names {
		w.write(t, name, "x\n")
	}
	changed, err := Changes(t.Context(), w, ChangesOptions{})
	require.NoError(t, err)
	require.Equal(t, len(names), strings.Count(changed.Diff, "diff --git "))
	require.Equal(t, len(names), strings.Count(changed.Status, "\n"))
}
