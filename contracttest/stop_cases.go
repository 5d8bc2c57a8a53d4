package contracttest

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/carrel-dev/carrel/workspaces"
)

func stopCases() []Case {
	return []Case{
		{ID: "W9-stop-finds-all", Rule: "After a timeout no process of the command is alive: no background job, double fork, other group or session.", run: stopFindsAllCase},
		{ID: "W9-stop-kills-all", Rule: "Those of them that ignore TERM are killed.", run: stopKillsAllCase},
		{ID: "W9-parent-ended", Rule: "What was started by a process of the command that has ended since is stopped as well.", run: parentEndedCase},
		{ID: "W9-shed-environment", Rule: "A process that left group, session and environment behind is stopped when the command was alone.", run: shedCase},
		{ID: "W9-others-live", Rule: "A stop touches no process of earlier commands and of those at the same time.", run: othersLiveCase},
		{ID: "W9-next-lives", Rule: "A stop that is still under way touches no command that is started meanwhile.", run: nextLivesCase},
		{ID: "W9-pid-limit", Rule: "The stop works at the limit on processes, and the workspace works on.", Needs: []Capability{LimitsPIDs}, run: stopAtLimitCase},
	}
}

// family is a command that starts processes in all the ways that try a stop, writes their numbers to the
// file pids, prints ready, and goes on with what the last of them do as well.
func (f *fixture) family(w workspaces.Workspace, last string) workspaces.Command {
	setsid := "timeout 300"
	if f.exec(w, sh("command -v setsid")).ExitCode == 0 {
		setsid = "setsid"
	} else {
		f.Logf("the workspace has no setsid: only other groups are tried, no other session")
	}
	return sh(`
		rm -f pids
		member='echo $$ >>pids; exec 2>/dev/null; `+last+`'
		sh -c "$member" &
		(sh -c "$member" & sh -c "$member" >/dev/null 2>&1 & )
		timeout 300 sh -c "$member" &
		$1 sh -c "$member" &
		($1 sh -c "$member" >/dev/null 2>&1 </dev/null & )
		env -i PATH="$PATH" sh -c "$member" &
		echo $$ >>pids
		while [ "$(wc -l <pids)" -lt 8 ]; do sleep 0.05; done
		echo ready
		`+last, setsid)
}

func stopFindsAllCase(f *fixture) {
	w := f.workspace()
	f.stopped(w, f.family(w, "exec sleep 300"), 0)
}

func stopKillsAllCase(f *fixture) {
	w := f.workspace()
	f.stopped(w, f.family(w, `trap "" TERM; while :; do sleep 1; done`), killTime)
}

// stopped has a command time out and waits for the death of those whose numbers it wrote.
func (f *fixture) stopped(w workspaces.Workspace, command workspaces.Command, more time.Duration) {
	f.Helper()
	command.Timeout = 3 * time.Second
	r := f.start(f.Context(), w, command)
	r.await("ready\n")
	pids := f.pids(w)
	end := r.wait(command.Timeout + more + f.patience)
	require.NoError(f, end.err)
	require.True(f, end.TimedOut)
	f.awaitDeath(w, pids)
}

func parentEndedCase(f *fixture) {
	w := f.workspace()
	f.stopped(w, sh(`
		sh -c '(sleep 300 & echo $! >>pids; sh -c "sleep 300 & echo \$! >>pids; sleep 0.2") &'
		while [ "$(wc -l <pids)" != 2 ]; do sleep 0.05; done 2>/dev/null
		sleep 0.5
		echo ready
		sleep 300`), 0)
}

func shedCase(f *fixture) {
	w := f.workspace()
	if f.exec(w, sh("command -v setsid")).ExitCode != 0 {
		f.Logf("the workspace has no setsid, with which a session is left")
	}
	f.stopped(w, sh(`
		leave=$(command -v setsid)
		env -i $leave "$(command -v sh)" -c 'echo $$ >>pids; exec '"$(command -v sleep)"' 300' >/dev/null 2>&1 </dev/null &
		while [ ! -s pids ]; do sleep 0.05; done
		sleep 0.2
		echo ready
		sleep 300`), 0)
}

func othersLiveCase(f *fixture) {
	w := f.workspace()
	job := strings.Fields(f.shell(w, "sleep 300 >/dev/null 2>&1 & echo $!"))
	beside := f.start(f.Context(), w, sh("echo $$; while [ ! -e go ]; do sleep 0.05; done; exit 6"))
	beside.await("\n")
	others := append(slices.Clone(job), strings.Fields(beside.out.String())...)
	require.Len(f, others, 2)

	f.stopped(w, f.family(w, "exec sleep 300"), 0)
	require.ElementsMatch(f, others, f.alive(w, others))
	f.write(w, "go", "")
	end := beside.wait(f.bound)
	require.NoError(f, end.err)
	require.Equal(f, 6, end.ExitCode)
	require.Equal(f, job, f.alive(w, job))
}

func nextLivesCase(f *fixture) {
	w := f.workspace()
	for range 30 {
		ctx, cancel := context.WithCancel(f.Context())
		r := f.start(ctx, w, sh("echo ready; exec sleep 300"))
		r.await("ready\n")
		cancel()
		require.ErrorIs(f, r.wait(f.patience).err, context.Canceled)
		for range 3 {
			result := f.exec(w, sh("echo on; exit 5"))
			require.Equal(f, 5, result.ExitCode)
			require.Equal(f, "on\n", result.Stdout)
		}
	}
}

func stopAtLimitCase(f *fixture) {
	const limit = 64
	w := f.acquire(f.open(f.manager(nil), runID), workspaces.AcquireOptions{Limits: workspaces.Limits{PIDs: limit}})
	command := sh(`
		echo $$ >>pids
		sleep 300 &
		last=$!
		echo $last >>pids
		# A shell that cannot fork ends.
		sh -c 'i=0; while [ $i -lt 200 ]; do sleep 300 & echo $! >>pids; i=$((i+1)); done'
		wait $last`)
	command.Timeout = 3 * time.Second
	r := f.attempt(f.Context(), w, command, command.Timeout+killTime+f.patience)
	require.NoError(f, r.err)
	pids := f.pids(w)
	require.Less(f, len(pids), limit+1, "processes in spite of the limit")
	f.awaitDeath(w, pids)
	require.Equal(f, "on\n", f.shell(w, "echo on"))
}
