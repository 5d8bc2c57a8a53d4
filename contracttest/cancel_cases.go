package contracttest

import (
	"context"
	"runtime"
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/carrel-dev/carrel/workspaces"
)

func cancelCases() []Case {
	return []Case{
		{ID: "W8-cancel-before", Rule: "A call whose context has ended returns the context's error and does nothing.", run: cancelBeforeCase},
		{ID: "W8-cancel-during", Rule: "A cancel returns at once with the context's error and the output so far.", run: cancelDuringCase},
		{ID: "W8-cancel-is-early", Rule: "A cancel does not wait for the grace that the command has.", run: cancelIsEarlyCase},
		{ID: "W8-cancel-stops", Rule: "A cancel stops the command and all that it started, within six seconds.", run: cancelStopsCase},
		{ID: "W8-cancel-after", Rule: "A context that ends after the call has returned ends nothing.", run: cancelAfterCase},
		{ID: "C54-cancel-leaks-nothing", Rule: "A hundred cancelled commands leave no process and no goroutine.", alone: true, run: cancelLeaksNothingCase},
		{ID: "M5-release-stops", Rule: "A released run's command ends with that error, and with all its processes.", run: releaseStopsCase},
	}
}

func cancelBeforeCase(f *fixture) {
	w := f.workspace()
	ctx, cancel := context.WithCancel(f.Context())
	cancel()
	r := f.attempt(ctx, w, sh("touch ran"), f.patience)
	require.ErrorIs(f, r.err, context.Canceled)
	_, err := f.tryRead(ctx, w, "f")
	require.ErrorIs(f, err, context.Canceled)
	require.ErrorIs(f, f.tryWrite(ctx, w, "written", nil), context.Canceled)

	// The provider itself, which must not count on the manager to look.
	_, err = f.provided(w).Exec(ctx, workspaces.Command{
		Args: []string{"touch", "ran"}, Dir: ".", Timeout: time.Minute, Stdout: &counter{}, Stderr: &counter{},
	})
	require.ErrorIs(f, err, context.Canceled)
	require.ErrorIs(f, f.provided(w).WriteFile(ctx, "written", nil), context.Canceled)
	require.Empty(f, f.shell(w, "ls"))
}

func cancelDuringCase(f *fixture) {
	w := f.workspace()
	ctx, cancel := context.WithCancel(f.Context())
	defer cancel()
	r := f.start(ctx, w, sh("echo partial; echo problem >&2; sleep 300"))
	r.await("partial\n")
	f.eventually(f.bound, "stderr arrives", func() bool { return r.stderr.String() != "" })
	cancel()
	end := r.wait(f.patience)
	require.ErrorIs(f, end.err, context.Canceled)
	require.Equal(f, "partial\n", end.Stdout)
	require.Equal(f, "problem\n", end.Stderr)
	require.False(f, end.TimedOut)
	require.Equal(f, "on\n", f.shell(w, "echo on"))
}

// cancelIsEarlyCase has a command that holds out until it is killed. A call that returned within
// less has not waited for that.
func cancelIsEarlyCase(f *fixture) {
	w := f.workspace()
	ctx, cancel := context.WithCancel(f.Context())
	defer cancel()
	r := f.start(ctx, w, sh("trap '' TERM; echo $$; while :; do sleep 0.1; done"))
	r.await("\n")
	cancel()
	end := r.wait(workspaces.KillAfter - time.Second)
	require.ErrorIs(f, end.err, context.Canceled)
	f.awaitDeath(w, strings.Fields(end.Stdout))
}

func cancelStopsCase(f *fixture) {
	w := f.workspace()
	ctx, cancel := context.WithCancel(f.Context())
	defer cancel()
	r := f.start(ctx, w, f.family(w, "exec sleep 300"))
	r.await("ready\n")
	pids := f.pids(w)
	require.ElementsMatch(f, pids, f.alive(w, pids))
	cancel()
	require.ErrorIs(f, r.wait(f.patience).err, context.Canceled)
	f.awaitDeath(w, pids)
}

func cancelAfterCase(f *fixture) {
	w := f.workspace()
	ctx, cancel := context.WithCancel(f.Context())
	defer cancel()
	r := f.attempt(ctx, w, sh("sleep 300 >/dev/null 2>&1 & echo $!"), f.patience)
	require.NoError(f, r.err)
	pids := strings.Fields(r.Stdout)
	require.Len(f, pids, 1)
	cancel()
	time.Sleep(300 * time.Millisecond)
	require.Equal(f, pids, f.alive(w, pids))
}

func cancelLeaksNothingCase(f *fixture) {
	w := f.workspace()
	f.shell(w, "true")
	var before int
	// Sessions that are opened beforehand may still be coming up.
	f.eventually(f.bound, "the number of goroutines is steady", func() bool {
		before = runtime.NumGoroutine()
		time.Sleep(500 * time.Millisecond)
		return runtime.NumGoroutine() == before
	})
	for range 100 {
		ctx, cancel := context.WithCancel(f.Context())
		time.AfterFunc(20*time.Millisecond, cancel)
		r := f.attempt(ctx, w, sh(`echo $$ >>pids; exec yes`), f.patience)
		cancel()
		require.ErrorIs(f, r.err, context.Canceled, "%+v", r.Result)
	}
	if text := f.shell(w, "cat pids 2>/dev/null || exit 0"); text != "" {
		f.awaitDeath(w, strings.Fields(text))
	}
	f.eventually(f.patience+workspaces.StopTime, "the goroutines of cancelled calls end", func() bool {
		return runtime.NumGoroutine() <= before+5
	})
}

func releaseStopsCase(f *fixture) {
	f.tolerate()
	m := f.manager(nil)
	run := f.open(m, runID)
	w := f.acquire(run, workspaces.AcquireOptions{})
	keeper := f.acquire(f.open(m, runID), workspaces.AcquireOptions{}) // the same one, by another handle
	require.Equal(f, w.ID(), keeper.ID())
	r := f.start(f.Context(), w, sh("echo $$; sleep 300 & wait"))
	r.await("\n")
	require.NoError(f, within(f, f.bound, "Release", func() error { return run.Release(f.Context(), workspaces.Completed) }))
	end := r.wait(f.patience)
	require.ErrorIs(f, end.err, workspaces.ErrRunEnded)
	f.awaitDeath(keeper, strings.Fields(end.Stdout))
}
