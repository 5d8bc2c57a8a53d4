package contracttest

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"strings"

	"github.com/stretchr/testify/require"

	"github.com/carrel-dev/carrel/workspaces"
)

func fileCases() []Case {
	return []Case{
		{ID: "C16-path-containment", Rule: "A path that leaves the root is refused, whatever it is spelled like; any other name is an ordinary one.", run: containmentCase},
		{ID: "C18-awkward-content", Rule: "Content and names of any bytes arrive as they are, and missing directories are made.", run: awkwardContentCase},
		{ID: "C52-sizes", Rule: "Files from no byte to 1 MiB are written and read whole.", run: sizesCase},
		{ID: "W14-too-large", Rule: "More than 1 MiB is an error, for reading and writing, and the file is untouched.", run: tooLargeCase},
		{ID: "W14-no-regular-file", Rule: "Named pipes, devices and directories are neither read nor written, and nobody waits.", run: noRegularFileCase},
		{ID: "W14-missing", Rule: "A missing file is fs.ErrNotExist, and so is one in a missing directory.", run: missingCase},
		{ID: "W14-independent-of-cap", Rule: "What the cap leaves out of an output, a file still has.", run: independentOfCapCase},
	}
}

func containmentCase(f *fixture) {
	w := f.workspace()
	// Where a command may not write there, nobody can.
	f.shell(w, `mkdir sub; { echo evil >"$(pwd -P)-evil"; } 2>/dev/null; exit 0`)
	base := strings.TrimSpace(f.shell(w, `root=$(pwd -P); printf %s "${root##*/}"`))
	for _, path := range []string{
		"../" + base + "-evil", "/workspace/../" + base + "-evil", "/workspace-evil", "/workspace-evil/x", "/etc/passwd", "sub/../../x", "", "a\x00b",
		"..", "/", "sub/../../" + base + "/x",
	} {
		_, err := f.tryRead(f.Context(), w, path)
		require.ErrorIs(f, err, workspaces.ErrInvalidInput, "read %q", path)
		require.ErrorIs(f, f.tryWrite(f.Context(), w, path, []byte("x")), workspaces.ErrInvalidInput, "write %q", path)
	}
	require.Contains(f, []string{"evil\n", ""}, f.shell(w, `cat "$(pwd -P)-evil" 2>/dev/null; exit 0`))
	for path, name := range map[string]string{
		"/workspace/sub/../b.txt": "b.txt", "./c.txt": "c.txt", "d.txt": "d.txt", "..foo": "..foo", "-n": "-n", "...": "...", ":(top)x": ":(top)x",
		"sub//./e": "sub/e", "-rf/--": "-rf/--", "a b": "a b", "[x]*?": "[x]*?", "~": "~", "$HOME": "$HOME", "\\": "\\", "new\nline": "new\nline", "café": "café",
	} {
		f.write(w, path, "content of "+path)
		require.Equal(f, "content of "+path, string(f.read(w, path)), "%q", path)
		require.Equal(f, "content of "+path, f.shell(w, `cat -- "./$1"`, name), "%q", path)
	}
}

const awkwardText = "it's \"$HOME\" `id` $(id)\nEOF\n'EOF'\na\\nb\n%s"

func awkwardContentCase(f *fixture) {
	w := f.workspace()
	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	for i, content := range []string{
		awkwardText, strings.Repeat("a", 200_000), string(every), "    café\r\n    second\r\n\r\n", "\xef\xbb\xbfbom", "no newline", "\n", "\n\n\n", "\x00", "-n", "\xff\xfeh\x00i\x00",
	} {
		path := fmt.Sprintf(`dir with space/q'uote"/%d/-n.txt`, i)
		f.write(w, path, content)
		require.Equal(f, content, string(f.read(w, path)))
		require.Equal(f, fmt.Sprintf("%x", sha256.Sum256([]byte(content))), f.shell(w, `sha256sum <"$1" | cut -c 1-64 | tr -d '\n'`, path))
	}
}

func sizesCase(f *fixture) {
	w := f.workspace()
	for _, size := range []int{0, 1, 4095, 4096, 65_536, 65_537, 1<<20 - 1, 1 << 20} {
		data := pattern(size)
		require.NoError(f, f.tryWrite(f.Context(), w, "f", data), "%d bytes", size)
		require.Equal(f, fmt.Sprintf("%x  f\n", sha256.Sum256(data)), f.shell(w, "sha256sum f"), "%d bytes written", size)
		require.True(f, string(data) == string(f.read(w, "f")), "%d bytes read", size)
	}
}

func tooLargeCase(f *fixture) {
	w := f.workspace()
	f.write(w, "f", "old")
	require.ErrorIs(f, f.tryWrite(f.Context(), w, "f", pattern(1<<20+1)), workspaces.ErrTooLarge)
	require.ErrorIs(f, f.tryWrite(f.Context(), w, "new", pattern(1<<20+1)), workspaces.ErrTooLarge)
	require.Equal(f, "f\n", f.shell(w, "ls"))
	require.Equal(f, "old", string(f.read(w, "f")))
	f.shell(w, "head -c 1048577 /dev/zero >large; truncate -s 1G huge")
	for _, path := range []string{"large", "huge"} {
		data, err := f.tryRead(f.Context(), w, path)
		require.ErrorIs(f, err, workspaces.ErrTooLarge, path)
		require.Empty(f, data)
	}
	require.Equal(f, "1048577\n", f.shell(w, "stat -c %s large"))
	f.write(w, "large", "new")
	require.Equal(f, "new", string(f.read(w, "large")))
}

func noRegularFileCase(f *fixture) {
	w := f.workspace()
	f.shell(w, "mkdir dir; mkfifo pipe; ln -s pipe link; ln -s dir/. dirlink")
	for _, path := range []string{"pipe", "link", "dir", "dirlink", "."} {
		err := within(f, f.patience, "a read of "+path, func() error {
			_, err := w.ReadFile(f.Context(), path)
			return err
		})
		require.ErrorIs(f, err, workspaces.ErrInvalidInput, "read %s", path)
		err = within(f, f.patience, "a write of "+path, func() error {
			return w.WriteFile(f.Context(), path, []byte("x"))
		})
		require.ErrorIs(f, err, workspaces.ErrInvalidInput, "write %s", path)
	}
	require.Equal(f, "fifo\ndirectory\n", f.shell(w, "stat -c %F pipe dir"))
	// Devices can only be made by those who may; a link to one leaves the workspace, or is a device.
	f.shell(w, "ln -s /dev/zero zero; ln -s /dev/full full")
	for _, path := range []string{"zero", "full"} {
		_, err := f.tryRead(f.Context(), w, path)
		require.ErrorIs(f, err, workspaces.ErrInvalidInput, path)
		require.ErrorIs(f, f.tryWrite(f.Context(), w, path, []byte("x")), workspaces.ErrInvalidInput, path)
	}
}

func missingCase(f *fixture) {
	w := f.workspace()
	f.write(w, "file", "x")
	for _, path := range []string{"nosuch", "nosuch/f", "nosuch/a/b"} {
		_, err := f.tryRead(f.Context(), w, path)
		require.ErrorIs(f, err, fs.ErrNotExist, path)
		require.NotErrorIs(f, err, workspaces.ErrGone, path)
	}
	_, err := f.tryRead(f.Context(), w, "file/x")
	require.Error(f, err, "below a file")
	require.Error(f, f.tryWrite(f.Context(), w, "file/x", nil), "below a file")
	require.Equal(f, "x", string(f.read(w, "file")))
}

func independentOfCapCase(f *fixture) {
	w := f.workspace()
	content := strings.Repeat("0123456789abcde\n", 20_000)
	f.write(w, "f", content)
	result := f.exec(w, sh("cat f"))
	require.True(f, result.StdoutTruncated)
	require.True(f, content == string(f.read(w, "f")))
}
