package contracttest

import (
	"time"

	"github.com/stretchr/testify/require"

	"github.com/carrel-dev/carrel/workspaces"
)

func expiryCases() []Case {
	return []Case{
		{ID: "M4-expiry", Rule: "After its expiry a workspace takes no call, and the call that notices has it disposed.", run: expiryCase},
		{ID: "M4-ends-without-us", Rule: "At its expiry a workspace ends though the process that made it does nothing.", Needs: []Capability{Probes, EndsAtExpiry}, run: endsWithoutUsCase},
	}
}

func expiryCase(f *fixture) {
	const lifetime = 3 * time.Second
	run := f.run()
	w := f.acquire(run, workspaces.AcquireOptions{Limits: workspaces.Limits{Lifetime: lifetime}})
	require.InDelta(f, lifetime, w.Info().ExpiresAt.Sub(w.Info().CreatedAt), float64(2*time.Second))
	time.Sleep(time.Until(w.Info().ExpiresAt) + 100*time.Millisecond)
	r := f.attempt(f.Context(), w, sh("echo on"), f.patience)
	require.ErrorIs(f, r.err, workspaces.ErrExpired)
	_, err := f.tryRead(f.Context(), w, "f")
	require.ErrorIs(f, err, workspaces.ErrExpired)
	require.ErrorIs(f, f.tryWrite(f.Context(), w, "f", nil), workspaces.ErrExpired)
	f.eventually(f.bound, "nothing is left", func() bool { return len(f.leftovers(f.deployment)) == 0 })

	next := f.acquire(run, workspaces.AcquireOptions{})
	require.True(f, next.Info().ExpiresAt.After(time.Now().Add(time.Minute)))
}

func endsWithoutUsCase(f *fixture) {
	const lifetime = 10 * time.Second
	w := f.acquire(f.run(), workspaces.AcquireOptions{Limits: workspaces.Limits{Lifetime: lifetime}})
	prober, ok := workspaces.As[workspaces.Prober](f.provided(w))
	require.True(f, ok)
	if time.Until(w.Info().ExpiresAt) > time.Second {
		require.NoError(f, prober.Probe(f.Context()))
	}
	f.eventually(lifetime+2*f.patience, "it has ended", func() bool {
		err := prober.Probe(f.Context())
		if err != nil {
			require.ErrorIs(f, err, workspaces.ErrGone)
			require.False(f, time.Now().Before(w.Info().ExpiresAt.Add(-time.Second)), "it ended before its expiry")
		}
		return err != nil
	})
}
