package contracttest

import (
	"context"
	"errors"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/carrel-dev/carrel/workspaces"
)

func collectCases() []Case {
	return []Case{
		{ID: "M8-expired", Rule: "A collection removes the expired workspaces of its deployment, whoever made them, and says how many.", Needs: []Capability{Collects}, run: collectExpiredCase},
		{ID: "M9-kept", Rule: "A collection removes nothing of another deployment, and nothing that is not expired.", Needs: []Capability{Collects}, run: collectKeepsCase},
		{ID: "M9-unsettled", Rule: "A run that is live, unknown or cannot be asked about keeps its workspaces.", Needs: []Capability{Collects}, run: collectUnsettledCase},
		{ID: "M8-settled", Rule: "A collection removes the workspaces of settled runs that another process left.", Needs: []Capability{Collects, Finds}, run: collectSettledCase},
		{ID: "M8-own-settled", Rule: "A collection disposes what this process holds of a settled run, and no other run's.", run: collectOwnSettledCase},
	}
}

func (f *fixture) collect(m *workspaces.Manager) int {
	type answer struct {
		removed int
		err     error
	}
	got := within(f, f.bound, "Collect", func() answer {
		removed, err := m.Collect(f.Context())
		return answer{removed, err}
	})
	require.NoError(f, got.err)
	return got.removed
}

// later is a clock that is ahead.
func later(by time.Duration) func(*workspaces.Options) {
	return func(o *workspaces.Options) { o.Now = func() time.Time { return time.Now().Add(by) } }
}

func collectExpiredCase(f *fixture) {
	f.tolerate()
	m := f.manager(nil)
	short := f.acquire(f.open(m, "short"), workspaces.AcquireOptions{Limits: workspaces.Limits{Lifetime: 10 * time.Minute}})
	f.shell(short, "sleep 300 >/dev/null 2>&1 & mkdir -p ro/d; touch ro/d/f; chmod -R a-w ro")
	long := f.acquire(f.open(m, "long"), workspaces.AcquireOptions{Limits: workspaces.Limits{Lifetime: 3 * time.Hour}})
	f.write(long, "f", "x")

	other := f.manager(later(time.Hour))
	require.Equal(f, 1, f.collect(other))
	require.Equal(f, 0, f.collect(other), "again")
	require.Equal(f, "x", string(f.read(long, "f")))
	r := f.attempt(f.Context(), short, sh("echo on"), f.bound)
	require.Error(f, r.err)
	require.Empty(f, r.Stdout)
	f.dispose(short)
	f.dispose(long)
	require.Empty(f, f.leftovers(f.deployment))
}

func collectKeepsCase(f *fixture) {
	m := f.manager(nil)
	w := f.acquire(f.open(m, runID), workspaces.AcquireOptions{Limits: workspaces.Limits{Lifetime: 10 * time.Minute}})
	f.write(w, "f", "x")
	job := f.shell(w, "sleep 300 >/dev/null 2>&1 & printf '%s' $!")
	stranger := f.manager(func(o *workspaces.Options) {
		later(time.Hour)(o)
		o.Deployment = f.deployment + "-b"
		o.IsSettled = func(context.Context, string) (workspaces.Settlement, error) { return workspaces.RunSettled, nil }
	})
	require.Equal(f, 0, f.collect(stranger), "of another deployment")
	require.Equal(f, 0, f.collect(f.manager(nil)), "not expired")
	require.Equal(f, 0, f.collect(m), "its own")
	require.Equal(f, "x", string(f.read(w, "f")))
	require.Equal(f, []string{job}, f.alive(w, []string{job}))
}

func collectUnsettledCase(f *fixture) {
	f.tolerate()
	w := f.workspace()
	for name, settled := range map[string]func(context.Context, string) (workspaces.Settlement, error){
		"live":    func(context.Context, string) (workspaces.Settlement, error) { return workspaces.RunLive, nil },
		"unknown": func(context.Context, string) (workspaces.Settlement, error) { return workspaces.SettlementUnknown, nil },
		"error": func(context.Context, string) (workspaces.Settlement, error) {
			return workspaces.RunSettled, errors.New("for the test")
		},
	} {
		require.Equal(f, 0, f.collect(f.manager(func(o *workspaces.Options) { o.IsSettled = settled })), name)
	}
	require.Equal(f, "on\n", f.shell(w, "echo on"))
}

func settledRun(id string) func(*workspaces.Options) {
	return func(o *workspaces.Options) {
		o.IsSettled = func(_ context.Context, runID string) (workspaces.Settlement, error) {
			if runID == id {
				return workspaces.RunSettled, nil
			}
			return workspaces.RunLive, nil
		}
	}
}

func collectSettledCase(f *fixture) {
	f.tolerate()
	m := f.abandonedManager(f.provider, nil)
	gone := f.acquire(f.open(m, "settled"), workspaces.AcquireOptions{})
	kept := f.acquire(f.open(m, "live"), workspaces.AcquireOptions{})
	require.Equal(f, 1, f.collect(f.manager(settledRun("settled"))))
	require.Error(f, f.attempt(f.Context(), gone, sh("echo on"), f.bound).err)
	require.Equal(f, "on\n", f.shell(kept, "echo on"))
	f.dispose(gone)
	f.dispose(kept)
}

func collectOwnSettledCase(f *fixture) {
	m := f.manager(settledRun("settled"))
	gone := f.acquire(f.open(m, "settled"), workspaces.AcquireOptions{})
	kept := f.acquire(f.open(m, "live"), workspaces.AcquireOptions{})
	require.Equal(f, 1, f.collect(m))
	require.ErrorIs(f, f.attempt(f.Context(), gone, sh("echo on"), f.bound).err, workspaces.ErrDisposed)
	require.Equal(f, "on\n", f.shell(kept, "echo on"))
	f.dispose(kept)
	require.Empty(f, f.leftovers(f.deployment))
}
