package contracttest

import (
	"context"
	"sync"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/carrel-dev/carrel/workspaces"
)

func disposeCases() []Case {
	return []Case{
		{ID: "W16-dispose-again", Rule: "Dispose may be called three times and concurrently, and succeeds each time.", run: disposeAgainCase},
		{ID: "C57-dispose-during-exec", Rule: "Dispose unblocks a running command with a disposed error, and its processes end.", run: disposeDuringExecCase},
		{ID: "W16-calls-after-dispose", Rule: "Every call after a disposal fails with a disposed error and makes nothing.", run: callsAfterDisposeCase},
		{ID: "W16-outlives-cancel", Rule: "A disposal goes on when its caller's context has ended.", run: disposeOutlivesCancelCase},
		{ID: "W16-stubborn-trees", Rule: "Read-only, closed, deep and oddly named trees are removed as well.", run: stubbornTreesCase},
		{ID: "W16-stubborn-processes", Rule: "Processes that ignore TERM, or hold the directory, do not keep a disposal from ending.", run: stubbornProcessesCase},
		{ID: "W16-waits-for-stops", Rule: "A disposal waits for the stop of commands that were cancelled.", run: disposeWaitsForStopsCase},
		{ID: "W16-others-live", Rule: "A disposal touches no other workspace.", run: disposeOthersLiveCase},
	}
}

func disposeAgainCase(f *fixture) {
	w := f.workspace()
	f.shell(w, "echo x >f")
	inner := f.provided(w)
	// The provider itself: a manager asks it once, but so may two managers, or a collection.
	var all sync.WaitGroup
	errs := make([]error, 3)
	for i := range errs {
		all.Go(func() { errs[i] = inner.Dispose(f.Context()) })
	}
	within(f, f.bound, "some Dispose", func() bool { all.Wait(); return true })
	for _, err := range errs {
		require.NoError(f, err)
	}
	require.Empty(f, f.leftovers(f.deployment))
	require.NoError(f, within(f, f.bound, "a later Dispose", func() error { return inner.Dispose(f.Context()) }))
	for range 3 {
		f.dispose(w)
	}
}

func disposeDuringExecCase(f *fixture) {
	w := f.workspace()
	r := f.start(f.Context(), w, sh("echo ready; sleep 300 & wait"))
	r.await("ready\n")
	var all sync.WaitGroup
	errs := make([]error, 2)
	for i := range errs {
		all.Go(func() { errs[i] = w.Dispose(f.Context()) })
	}
	end := r.wait(f.patience)
	require.ErrorIs(f, end.err, workspaces.ErrDisposed)
	require.Equal(f, "ready\n", end.Stdout)
	within(f, f.bound, "some Dispose", func() bool { all.Wait(); return true })
	require.NoError(f, errs[0])
	require.NoError(f, errs[1])
	require.Empty(f, f.leftovers(f.deployment))

	// The same without a manager that ends the call's context.
	w = f.workspace()
	inner := f.provided(w)
	out := newSink()
	done := make(chan error, 1)
	go func() {
		_, err := inner.Exec(f.Context(), workspaces.Command{
			Args: []string{"sh", "-c", "echo ready; sleep 300"}, Dir: ".", Timeout: 5 * time.Minute, Stdout: out, Stderr: &counter{},
		})
		done <- err
	}()
	f.eventually(f.bound, "the command runs", func() bool { return out.String() != "" })
	require.NoError(f, within(f, f.bound, "Dispose", func() error { return inner.Dispose(f.Context()) }))
	require.ErrorIs(f, within(f, f.patience, "Exec", func() error { return <-done }), workspaces.ErrDisposed)
}

func callsAfterDisposeCase(f *fixture) {
	w := f.workspace()
	inner := f.provided(w)
	f.dispose(w)
	for _, disposed := range []workspaces.Workspace{w, inner} {
		_, err := disposed.Exec(f.Context(), workspaces.Command{
			Args: []string{"true"}, Dir: ".", Timeout: time.Minute, Stdout: &counter{}, Stderr: &counter{},
		})
		require.ErrorIs(f, err, workspaces.ErrDisposed, "exec")
		_, err = disposed.ReadFile(f.Context(), "f")
		require.ErrorIs(f, err, workspaces.ErrDisposed, "read")
		require.ErrorIs(f, disposed.WriteFile(f.Context(), "f", nil), workspaces.ErrDisposed, "write")
		require.NotEmpty(f, disposed.ID())
		require.Equal(f, w.Info().ExpiresAt, disposed.Info().ExpiresAt)
	}
	require.Empty(f, f.leftovers(f.deployment))
	_, err := f.run().Get(f.Context(), w.ID())
	require.ErrorIs(f, err, workspaces.ErrNotFound)

	again := f.workspace()
	require.NotEqual(f, inner, f.provided(again))
	require.Equal(f, "on\n", f.shell(again, "ls; echo on"))
}

func disposeOutlivesCancelCase(f *fixture) {
	w := f.workspace()
	f.shell(w, "trap '' TERM; sh -c 'while :; do sleep 1; done' >/dev/null 2>&1 &")
	ctx, cancel := context.WithCancel(f.Context())
	cancel()
	// The provider itself, whose caller's context a manager never ends.
	err := within(f, f.patience, "Dispose", func() error { return f.provided(w).Dispose(ctx) })
	if err != nil {
		require.ErrorIs(f, err, context.Canceled)
	}
	f.eventually(f.bound, "nothing is left", func() bool { return len(f.leftovers(f.deployment)) == 0 })
	f.dispose(w)
}

func stubbornTreesCase(f *fixture) {
	w := f.workspace()
	f.shell(w, `
		mkdir -p mod/cache/a/b closed/sub 'new
line' -- -rf
		touch mod/cache/a/b/f closed/sub/f ./-rf/f .hidden
		i=0; while [ $i -lt 100 ]; do mkdir -p "deep/$i"; cd deep || exit; i=$((i+1)); done; cd "$WORKSPACE" || exit
		ln -s /nonexistent dangling; ln -s . self; mkfifo pipe
		chmod -R a-w mod; chmod 0 closed/sub; chmod 0 closed`)
	f.dispose(w)
	require.Empty(f, f.leftovers(f.deployment))
}

func stubbornProcessesCase(f *fixture) {
	w := f.workspace()
	f.shell(w, `
		for i in 1 2 3; do
			sh -c 'trap "" TERM HUP INT; mkdir -p "d$1"; cd "d$1"; while :; do echo x >>f; sleep 0.1; done' sh $i >/dev/null 2>&1 &
			timeout 300 sh -c 'trap "" TERM HUP INT; while :; do mkdir -p e; echo x >>e/f; sleep 0.1; done' >/dev/null 2>&1 &
		done`)
	f.dispose(w)
	require.Empty(f, f.leftovers(f.deployment))
	time.Sleep(500 * time.Millisecond)
	require.Empty(f, f.leftovers(f.deployment), "came back")
}

func disposeWaitsForStopsCase(f *fixture) {
	w := f.workspace()
	ctx, cancel := context.WithCancel(f.Context())
	defer cancel()
	r := f.start(ctx, w, f.family(w, `trap "" TERM; while :; do sleep 1; done`))
	r.await("ready\n")
	cancel()
	require.ErrorIs(f, r.wait(f.patience).err, context.Canceled)
	f.dispose(w)
	require.Empty(f, f.leftovers(f.deployment))
}

func disposeOthersLiveCase(f *fixture) {
	m := f.manager(nil)
	one := f.acquire(f.open(m, "one"), workspaces.AcquireOptions{})
	two := f.acquire(f.open(m, "two"), workspaces.AcquireOptions{})
	require.NotEqual(f, one.ID(), two.ID())
	f.write(one, "f", "one")
	f.write(two, "f", "two")
	job := f.shell(two, "sleep 300 >/dev/null 2>&1 & printf '%s' $!")
	both := f.leftovers(f.deployment)
	f.dispose(one)
	left := f.leftovers(f.deployment)
	require.NotEmpty(f, left, "Leftovers lists what there is")
	require.Less(f, len(left), len(both))
	require.Equal(f, "two", string(f.read(two, "f")))
	require.Equal(f, []string{job}, f.alive(two, []string{job}))
}
