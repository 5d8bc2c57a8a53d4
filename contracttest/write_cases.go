package contracttest

import (
	"bytes"
	"io/fs"
	"strconv"
	"strings"
	"sync"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/carrel-dev/carrel/workspaces"
)

func writeCases() []Case {
	return []Case{
		{ID: "W15-mode", Rule: "An existing file keeps its mode; a new one gets 0644, its directories can be entered by all.", run: modeCase},
		{ID: "W15-read-only", Rule: "A file without write permission is refused with fs.ErrPermission, and untouched.", run: readOnlyFileCase},
		{ID: "W15-atomic", Rule: "A reader sees the old content or the new one, at every moment.", run: atomicCase},
		{ID: "W15-no-temporary-file", Rule: "Nothing of a write but the file itself ever shows, in a list or a diff or the directory.", run: noTemporaryFileCase},
		{ID: "W15-runs-at-once", Rule: "A script that was just written can be run.", run: runsAtOnceCase},
		{ID: "C09-parallel-updates", Rule: "Updates of one file at the same time all apply, whatever their paths are spelled like.", run: parallelUpdatesCase},
	}
}

func modeCase(f *fixture) {
	w := f.workspace()
	f.shell(w, "for m in 755 600 640 666; do echo old >m$m; chmod $m m$m; done; umask 077")
	for _, mode := range []string{"755", "600", "640", "666"} {
		f.write(w, "m"+mode, "new")
		require.Equal(f, mode+"\n", f.shell(w, "stat -c %a m"+mode))
	}
	f.write(w, "a/b/new", "x")
	require.Equal(f, "644\n755\n755\n", f.shell(w, "stat -c %a a/b/new a a/b"))
	require.Equal(f, f.shell(w, "id -u"), f.shell(w, "stat -c %u a/b/new"), "the owner is who runs commands")
}

func readOnlyFileCase(f *fixture) {
	w := f.workspace()
	f.shell(w, "echo old >f; chmod 444 f; echo old >none; chmod 0 none")
	for _, path := range []string{"f", "none"} {
		require.ErrorIs(f, f.tryWrite(f.Context(), w, path, []byte("new")), fs.ErrPermission, path)
	}
	require.Equal(f, "old\n", string(f.read(w, "f")))
	require.Equal(f, "444\n0\n", f.shell(w, "stat -c %a f none"))
	f.shell(w, "chmod 600 none")
	require.Equal(f, "old\n", string(f.read(w, "none")))
}

func atomicCase(f *fixture) {
	w := f.workspace()
	content := func(c string) string { return strings.Repeat(c, 500_000) }
	f.write(w, "f", content("a"))
	// Whoever sees something else than half a million times one letter writes it down.
	watcher := f.start(f.Context(), w, sh(`
		echo ready
		while [ ! -e stop ]; do
			seen=$(fold -w 1000 f | sort -u | cut -c 1 | tr -d '\n') size=$(cat f | wc -c)
			case $seen in [ab]) ;; *) echo "saw <$seen>" ;; esac
			[ "$size" = 500000 ] || echo "saw $size bytes"
		done`))
	watcher.await("ready\n")
	for i := range 30 {
		want := content(string(rune('a' + i%2)))
		f.write(w, "f", want)
		require.True(f, want == string(f.read(w, "f")), "what was written is read")
	}
	f.write(w, "stop", "")
	end := watcher.wait(f.bound)
	require.NoError(f, end.err)
	require.Equal(f, "ready\n", end.Stdout)
}

func noTemporaryFileCase(f *fixture) {
	w := f.workspace()
	f.write(w, "dir/f", "first")
	watcher := f.start(f.Context(), w, sh(`
		echo ready
		while [ ! -e dir/stop ]; do
			for name in $(ls -A dir); do
				case $name in f|stop) ;; *) echo "saw $name" ;; esac
			done
			for name in $(ls -A .); do
				case $name in dir|.git) ;; *) echo "saw $name" ;; esac
			done
		done`))
	watcher.await("ready\n")
	for range 30 {
		require.NoError(f, f.tryWrite(f.Context(), w, "dir/f", pattern(100_000)))
	}
	list, err := workspaces.ListFiles(f.Context(), w, workspaces.ListOptions{})
	require.NoError(f, err)
	require.Equal(f, []workspaces.FileEntry{{Path: "dir/f"}}, list.Entries)
	changed, err := workspaces.Changes(f.Context(), w, workspaces.ChangesOptions{})
	require.NoError(f, err)
	require.Equal(f, "?? dir/f\n", changed.Status)
	f.write(w, "dir/stop", "")
	end := watcher.wait(f.bound)
	require.NoError(f, end.err)
	require.Equal(f, "ready\n", end.Stdout)

	// A write that fails leaves nothing either.
	f.shell(w, "mkdir dir/d; rm dir/stop")
	require.Error(f, f.tryWrite(f.Context(), w, "dir/d", []byte("x")))
	require.Equal(f, "d\nf\n", f.shell(w, "ls -A dir"))
	require.Equal(f, ".git\ndir\n", f.shell(w, "ls -A"))
}

func runsAtOnceCase(f *fixture) {
	w := f.workspace()
	f.shell(w, "touch script; chmod 755 script")
	for i := range 10 {
		f.write(w, "script", "#!/bin/sh\necho "+strconv.Itoa(i)+"\n")
		result := f.exec(w, workspaces.Command{Args: []string{"./script"}})
		require.Equal(f, strconv.Itoa(i)+"\n", result.Stdout, "exit code %d, %s", result.ExitCode, result.Stderr)
	}
}

func parallelUpdatesCase(f *fixture) {
	w := f.workspace()
	f.shell(w, "mkdir sub; ln -s n.txt link; ln -s .. sub/up")
	paths := []string{"n.txt", "./sub/../n.txt", "/workspace/n.txt", "link", "sub/up/n.txt"}
	for round := range 10 {
		f.write(w, "n.txt", "start\n")
		var all sync.WaitGroup
		for i, path := range paths {
			all.Go(func() {
				assert.NoError(f, workspaces.Update(f.Context(), w, path, func(_ string, old []byte) ([]byte, error) {
					return append(bytes.Clone(old), strconv.Itoa(i)+"\n"...), nil
				}), "%s", path)
			})
		}
		within(f, f.bound, "some update", func() bool { all.Wait(); return true })
		lines := strings.Fields(string(f.read(w, "n.txt")))
		require.ElementsMatch(f, []string{"start", "0", "1", "2", "3", "4"}, lines, "round %d", round)
	}
}
