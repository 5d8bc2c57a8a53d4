package contracttest

import (
	"context"
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/carrel-dev/carrel/workspaces"
)

func linkCases() []Case {
	return []Case{
		{ID: "C17-links-outside", Rule: "A link that leaves the workspace is followed by no read and no write, dangling or not, as a file or on the way.", run: linksOutsideCase},
		{ID: "C17-links-inside", Rule: "A link that stays inside is followed, and stays a link.", run: linksInsideCase},
		{ID: "W15-link-swapped", Rule: "A link that is swapped during the call leads no write and no read outside.", run: linkSwappedCase},
		{ID: "W15-write-at", Rule: "A write for a place happens there or not at all; elsewhere it says where the path leads.", Needs: []Capability{WritesAt}, run: writeAtCase},
	}
}

// outside makes a directory outside of the workspace, with a file victim.txt, and the links of C17 into it.
func (f *fixture) outside(w workspaces.Workspace) (dir string) {
	dir = strings.TrimSpace(f.shell(w, `
		out=$(mktemp -d) && printf original >"$out/victim.txt" || exit
		ln -s "$out/victim.txt" notes.md; ln -s "$out/new.txt" draft.txt; ln -s "$out" sub
		mkdir deep; ln -s ../sub/victim.txt deep/chain; ln -s /etc/passwd passwd
		printf '%s' "$out"`))
	return dir
}

func linksOutsideCase(f *fixture) {
	w := f.workspace()
	out := f.outside(w)
	for _, path := range []string{"notes.md", "draft.txt", "sub/a.txt", "sub/n/b.txt", "sub/victim.txt", "deep/chain", "deep/../sub/y"} {
		require.ErrorIs(f, f.tryWrite(f.Context(), w, path, []byte("evil")), workspaces.ErrInvalidInput, "write %s", path)
	}
	for _, path := range []string{"notes.md", "sub/victim.txt", "deep/chain", "passwd"} {
		data, err := f.tryRead(f.Context(), w, path)
		require.ErrorIs(f, err, workspaces.ErrInvalidInput, "read %s", path)
		require.Empty(f, data)
	}
	require.Equal(f, "victim.txt\n", f.shell(w, `ls -A "$1"`, out))
	require.Equal(f, "original", f.shell(w, `cat "$1/victim.txt"`, out))
}

func linksInsideCase(f *fixture) {
	w := f.workspace()
	f.shell(w, `
		mkdir -p real/dir; printf one >real/file; printf two >real/dir/two
		ln -s real/file link; ln -s real/dir dir; ln -s link link2; ln -s ../file real/dir/up; ln -s real/made made
		ln -s "$(pwd -P)/real/file" absolute`)
	for path, real := range map[string]string{
		"link": "real/file", "link2": "real/file", "dir/two": "real/dir/two", "dir/up": "real/file", "dir/three": "real/dir/three", "made": "real/made", "absolute": "real/file",
	} {
		f.write(w, path, "by "+path)
		require.Equal(f, "by "+path, string(f.read(w, real)), path)
		require.Equal(f, "by "+path, string(f.read(w, path)), path)
	}
	require.Equal(f, "symbolic link\nsymbolic link\nsymbolic link\n", f.shell(w, "stat -c %F link dir made"))
}

func linkSwappedCase(f *fixture) {
	w := f.workspace()
	out := strings.TrimSpace(f.shell(w, `mktemp -d`))
	defer f.shell(w, `rm -rf "$1"`, out)
	f.shell(w, `printf original >"$1/f"; mkdir inside; printf mine >inside/f`, out)
	ctx, cancel := context.WithCancel(f.Context())
	defer cancel()
	swapper := f.start(ctx, w, sh(`
		swap() { ln -s "$1" x && mv -T x "$2" || rm -rf x "$2"; } # a write may have made it a directory
		swap inside a; swap inside/f c; echo ready
		for round in $(seq 150); do
			swap "$1" a; swap "$1/f" c
			swap inside a; swap inside/f c
		done`, out))
	swapper.await("ready\n")
	for end := time.Now().Add(f.bound); len(swapper.done) == 0 && time.Now().Before(end); {
		for _, path := range []string{"a/f", "c"} {
			_ = f.tryWrite(f.Context(), w, path, []byte("mine")) // it may fail: the link leads anywhere
			if data, err := f.tryRead(f.Context(), w, path); err == nil {
				require.Equal(f, "mine", string(data))
			}
		}
	}
	cancel()
	swapper.wait(f.bound)
	require.Equal(f, "f\n", f.shell(w, `ls -A "$1"`, out))
	require.Equal(f, "original", f.shell(w, `cat "$1/f"`, out))
}

func writeAtCase(f *fixture) {
	w := f.workspace()
	f.shell(w, "mkdir dir; printf old >dir/f; ln -s dir/f link; ln -s dir also")
	writer, ok := workspaces.As[workspaces.LinkWriter](f.provided(w))
	require.True(f, ok)
	for path, leads := range map[string]string{"link": "dir/f", "also/f": "dir/f", "also/new/g": "dir/new/g"} {
		err := within(f, f.bound, "WriteFileAt", func() error { return writer.WriteFileAt(f.Context(), path, path, []byte("x")) })
		var moved *workspaces.MovedError
		require.ErrorAs(f, err, &moved, path)
		require.Equal(f, leads, moved.At)
	}
	require.Equal(f, "old", string(f.read(w, "dir/f")))
	require.Equal(f, "f\n", f.shell(w, "ls -A dir"))
	for path, leads := range map[string]string{"link": "dir/f", "also/new/g": "dir/new/g", "dir/f": "dir/f"} {
		require.NoError(f, within(f, f.bound, "WriteFileAt", func() error { return writer.WriteFileAt(f.Context(), path, leads, []byte("by "+path)) }))
		require.Equal(f, "by "+path, string(f.read(w, leads)))
	}
}
