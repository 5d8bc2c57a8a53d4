package contracttest

import (
	"time"

	"github.com/stretchr/testify/require"

	"github.com/carrel-dev/carrel/workspaces"
)

func goneCases() []Case {
	return []Case{
		{ID: "W17-gone", Rule: "When the thing behind a workspace was removed, the next call of any kind says gone.", Needs: []Capability{Probes}, run: goneCase},
		{ID: "W17-gone-during-exec", Rule: "A command whose sandbox is removed never succeeds: its call says gone.", Needs: []Capability{Probes, Sandbox}, run: goneDuringExecCase},
		{ID: "W17-probe", Rule: "A probe of a workspace that is there is nil, also after a call failed, and one of a removed workspace is gone.", Needs: []Capability{Probes}, run: probeCase},
		{ID: "M4-after-gone", Rule: "A workspace that was found gone is forgotten, cleaned up, and replaced by the next acquire.", Needs: []Capability{Probes}, run: afterGoneCase},
		{ID: "W16-dispose-gone", Rule: "The disposal of what is gone succeeds.", Needs: []Capability{Probes}, run: disposeGoneCase},
	}
}

func (f *fixture) remove(w workspaces.Workspace) {
	require.NoError(f, within(f, f.bound, "Config.Remove", func() error { return f.config.Remove(f.Context(), w) }))
}

func goneCase(f *fixture) {
	calls := map[string]func(w workspaces.Workspace) error{
		"exec": func(w workspaces.Workspace) error {
			return f.attempt(f.Context(), w, sh("echo on"), workspaces.ProbeTimeout+f.patience).err
		},
		"read": func(w workspaces.Workspace) error {
			_, err := f.tryRead(f.Context(), w, "f")
			return err
		},
		"write": func(w workspaces.Workspace) error { return f.tryWrite(f.Context(), w, "f", []byte("x")) },
	}
	m := f.manager(nil)
	for name, call := range calls {
		w := f.acquire(f.open(m, "run "+name), workspaces.AcquireOptions{})
		f.write(w, "f", "x")
		require.NoError(f, call(w), name)
		f.remove(w)
		for range 2 {
			err := call(w)
			require.ErrorIs(f, err, workspaces.ErrGone, name)
			require.NotErrorIs(f, err, workspaces.ErrUnavailable, name)
		}
	}
}

func goneDuringExecCase(f *fixture) {
	w := f.workspace()
	r := f.start(f.Context(), w, sh("echo ready; sleep 300"))
	r.await("ready\n")
	f.remove(w)
	end := r.wait(workspaces.ProbeTimeout + f.patience)
	require.ErrorIs(f, end.err, workspaces.ErrGone, "%+v", end.Result)
	require.Equal(f, "ready\n", end.Stdout)
}

func probeCase(f *fixture) {
	w := f.workspace()
	prober, ok := workspaces.As[workspaces.Prober](f.provided(w))
	require.True(f, ok)
	probe := func() error {
		return within(f, workspaces.ProbeTimeout+f.patience, "Probe", func() error { return prober.Probe(f.Context()) })
	}
	require.NoError(f, probe())
	_, err := f.tryRead(f.Context(), w, "nosuch")
	require.Error(f, err)
	require.Equal(f, 127, f.exec(w, workspaces.Command{Args: []string{"nosuch"}}).ExitCode)
	require.NoError(f, probe())
	f.remove(w)
	require.ErrorIs(f, probe(), workspaces.ErrGone)
}

func afterGoneCase(f *fixture) {
	run := f.run()
	w := f.workspace()
	f.write(w, "f", "x")
	f.remove(w)
	_, err := f.tryRead(f.Context(), w, "f")
	require.ErrorIs(f, err, workspaces.ErrGone)
	_, err = run.Get(f.Context(), w.ID())
	require.ErrorIs(f, err, workspaces.ErrGone)

	next := f.workspace()
	require.Equal(f, ".git\n", f.shell(next, "ls -A"))
	require.True(f, next.Info().ExpiresAt.After(time.Now()))
	require.NotEmpty(f, f.leftovers(f.deployment))
	f.dispose(next)
	f.eventually(f.bound, "nothing is left", func() bool { return len(f.leftovers(f.deployment)) == 0 })
}

func disposeGoneCase(f *fixture) {
	w := f.workspace()
	f.remove(w)
	require.NoError(f, within(f, f.bound, "Dispose", func() error { return f.provided(w).Dispose(f.Context()) }))
	f.dispose(w)
	require.Empty(f, f.leftovers(f.deployment))
}
