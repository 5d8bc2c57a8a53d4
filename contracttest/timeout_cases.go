package contracttest

import (
	"context"
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/carrel-dev/carrel/workspaces"
)

// killTime is what a stop may take that has to kill.
const killTime = workspaces.KillAfter + 2*time.Second

func timeoutCases() []Case {
	return []Case{
		{ID: "W5-timeout-is-a-result", Rule: "A timeout is a result: timed-out, exit code 124, the output so far.", run: timeoutIsAResultCase},
		{ID: "W5-own-124", Rule: "A command's own exit 124 or 137 is no timeout.", run: ownExitCase},
		{ID: "W5-deadline-is-an-error", Rule: "A deadline of the caller's context is context.DeadlineExceeded, with the output so far.", run: deadlineCase},
		{ID: "W5-term-first", Rule: "A command that timed out gets TERM and may clean up.", run: termFirstCase},
		{ID: "C27-kill", Rule: "What ignores TERM is killed five seconds later, with its children; the output so far stays.", run: killCase},
		{ID: "W5-expiry", Rule: "No command runs past the expiry of its workspace; that is a timeout.", run: commandExpiryCase},
		{ID: "W6-guard", Rule: "Where nothing answers any more, the call returns as timed out 15 s after its timeout, and the workspace goes on when it answers again.",
			Needs: []Capability{Pauses}, run: guardCase},
	}
}

func timeoutIsAResultCase(f *fixture) {
	w := f.workspace()
	command := sh("echo partial; echo problem >&2; sleep 300")
	command.Timeout = time.Second
	r := f.attempt(f.Context(), w, command, command.Timeout+f.patience)
	require.NoError(f, r.err)
	require.True(f, r.TimedOut)
	require.Equal(f, 124, r.ExitCode)
	require.Equal(f, "partial\n", r.Stdout)
	require.Equal(f, "problem\n", r.Stderr)
	require.GreaterOrEqual(f, r.Duration, command.Timeout)
	require.Equal(f, "on\n", f.shell(w, "echo on"))
}

func ownExitCase(f *fixture) {
	w := f.workspace()
	for script, code := range map[string]int{
		"exit 124": 124, "exit 137": 137, "exit 143": 143, "kill -9 $$": 137,
		"timeout 0.1 sleep 300": 124, "timeout -s KILL 0.1 sleep 300": 137,
	} {
		result := f.soon(w, sh(script))
		require.Equal(f, code, result.ExitCode, script)
		require.False(f, result.TimedOut, script)
	}
}

func deadlineCase(f *fixture) {
	w := f.workspace()
	ctx, cancel := context.WithTimeout(f.Context(), time.Second)
	defer cancel()
	r := f.attempt(ctx, w, sh("echo partial; sleep 300"), time.Second+f.patience)
	require.ErrorIs(f, r.err, context.DeadlineExceeded)
	require.False(f, r.TimedOut)
	require.Equal(f, "partial\n", r.Stdout)
	require.Equal(f, "on\n", f.shell(w, "echo on"))
}

func termFirstCase(f *fixture) {
	w := f.workspace()
	command := sh("trap 'echo cleaned >cleaned; exit 3' TERM; echo ready; while :; do sleep 0.05; done")
	command.Timeout = time.Second
	r := f.attempt(f.Context(), w, command, command.Timeout+f.patience)
	require.NoError(f, r.err)
	require.True(f, r.TimedOut)
	require.Equal(f, 124, r.ExitCode)
	require.True(f, strings.HasPrefix(r.Stdout, "ready\n"))
	require.Equal(f, "cleaned\n", string(f.read(w, "cleaned")))
}

func killCase(f *fixture) {
	w := f.workspace()
	command := sh(`
		echo partial
		sh -c 'trap "" TERM; echo $$ >>pids; while :; do sleep 1; done' &
		trap '' TERM
		echo $$ >>pids
		while :; do sleep 1; done`)
	command.Timeout = time.Second
	r := f.attempt(f.Context(), w, command, command.Timeout+killTime+f.patience)
	require.NoError(f, r.err)
	require.True(f, r.TimedOut)
	require.Equal(f, 124, r.ExitCode)
	require.Equal(f, "partial\n", r.Stdout)
	pids := f.pids(w)
	require.Len(f, pids, 2)
	f.awaitDeath(w, pids)
}

func commandExpiryCase(f *fixture) {
	const lifetime = 4 * time.Second
	m := f.manager(nil)
	w := f.acquire(f.open(m, runID), workspaces.AcquireOptions{Limits: workspaces.Limits{Lifetime: lifetime}})
	r := f.attempt(f.Context(), w, sh("echo partial; sleep 300"), lifetime+f.patience)
	if r.err != nil {
		// The making took so long that nothing was left.
		require.ErrorIs(f, r.err, workspaces.ErrExpired)
	} else {
		require.True(f, r.TimedOut)
		require.Equal(f, 124, r.ExitCode)
	}
	r = f.attempt(f.Context(), w, sh("echo on"), f.patience)
	require.ErrorIs(f, r.err, workspaces.ErrExpired)
	require.Empty(f, r.Stdout)
}

func guardCase(f *fixture) {
	w := f.workspace()
	resume, err := f.config.Pause(f.Context(), w)
	require.NoError(f, err)
	command := sh("echo on")
	command.Timeout = time.Second
	r := f.attempt(f.Context(), w, command, command.Timeout+workspaces.GuardTime+f.patience)
	require.NoError(f, resume())
	require.NoError(f, r.err)
	require.True(f, r.TimedOut)
	require.Equal(f, 124, r.ExitCode)
	require.Equal(f, "on\n", f.shell(w, "echo on"))
}
