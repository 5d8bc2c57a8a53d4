package contracttest

import (
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/carrel-dev/carrel/workspaces"
)

func jobCases() []Case {
	return []Case{
		{ID: "W7-exit-with-background-job", Rule: "A command that has exited returns at once with its exit code, though a job of it holds the output.", run: backgroundJobCase},
		{ID: "W7-job-runs-on", Rule: "That job runs on, and what it writes neither blocks nor ends it.", run: jobRunsOnCase},
		{ID: "W7-job-ends-with-workspace", Rule: "A background job ends when its workspace is disposed.", run: jobEndsCase},
		{ID: "C50-reaped", Rule: "What a command leaves behind is reaped: it does not use up the limit on processes.", Needs: []Capability{LimitsPIDs}, run: reapedCase},
	}
}

func backgroundJobCase(f *fixture) {
	w := f.workspace()
	for _, c := range []struct {
		script, out string
		code        int
	}{
		{"sleep 300 & echo started", "started\n", 0},
		{"sleep 300 & exit 7", "", 7},
		{"sleep 300 </dev/null >/dev/null & echo ok", "ok\n", 0},
		{"sleep 300 2>/dev/null & echo ok; kill -9 $$", "ok\n", 137},
		{"(sleep 300 & ) ; echo ok", "ok\n", 0},
		{"timeout 300 sleep 300 & echo ok", "ok\n", 0},
		{"sleep 300 & head -c 60000 /dev/zero | tr '\\0' y; exit 2", strings.Repeat("y", 60_000), 2},
	} {
		result := f.soon(w, sh(c.script))
		require.Equal(f, c.code, result.ExitCode, c.script)
		require.Equal(f, c.out, result.Stdout, c.script)
		require.False(f, result.TimedOut, c.script)
	}
	result := f.soon(w, sh("yes & exit 3"))
	require.Equal(f, 3, result.ExitCode, "a job that writes all the time")
}

func jobRunsOnCase(f *fixture) {
	w := f.workspace()
	f.shell(w, `
		(
			while [ ! -e go ]; do sleep 0.05; done
			head -c 1000000 /dev/zero && head -c 1000000 /dev/zero >&2 && echo done >written
			exec sleep 300
		) &
		echo $! >pids`)
	pids := f.pids(w)
	time.Sleep(200 * time.Millisecond)
	require.Equal(f, pids, f.alive(w, pids))
	f.write(w, "go", "")
	f.eventually(f.bound, "the job writes two megabytes to nobody", func() bool {
		_, err := w.ReadFile(f.Context(), "written")
		return err == nil
	})
	require.Equal(f, pids, f.alive(w, pids))
}

func jobEndsCase(f *fixture) {
	w := f.workspace()
	f.shell(w, `
		sleep 300 & sh -c 'trap "" TERM; while :; do sleep 1; done' &
		timeout 300 sleep 300 &
		(sleep 300 >/dev/null 2>&1 & )`)
	f.dispose(w)
	require.Empty(f, f.leftovers(f.deployment))
}

func reapedCase(f *fixture) {
	const limit = 128
	w := f.acquire(f.open(f.manager(nil), runID), workspaces.AcquireOptions{Limits: workspaces.Limits{PIDs: limit}})
	for range 10 {
		f.shell(w, "i=0; while [ $i -lt 50 ]; do (sleep 0.01 & ) || exit; i=$((i+1)); done; sleep 0.2")
	}
	f.eventually(f.patience, "no process is a zombie", func() bool {
		return f.shell(w, `
			for dir in /proc/[0-9]*; do
				{ read -r stat; } 2>/dev/null <"$dir/stat" || continue
				case ${stat##*') '} in Z*) echo "$dir" ;; esac
			done
			exit 0`) == ""
	})
}
