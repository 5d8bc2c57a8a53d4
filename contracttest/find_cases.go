package contracttest

import (
	"context"
	"sync"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/carrel-dev/carrel/workspaces"
)

func findCases() []Case {
	return []Case{
		{ID: "M10-find", Rule: "A run that continues in another process finds its workspaces, and no other run's or deployment's.", Needs: []Capability{Finds}, run: findCase},
		{ID: "M10-find-checkout", Rule: "A workspace that is found knows its repository, ref and commit, and is not checked out again.", Needs: []Capability{Finds, FileRepositories}, run: findCheckoutCase},
		{ID: "M10-attach", Rule: "Two processes that create for one run and repository end with one workspace.", Needs: []Capability{Finds}, run: attachCase},
		{ID: "M10-not-found", Rule: "What was disposed or has expired is not found.", Needs: []Capability{Finds}, run: notFoundCase},
	}
}

// otherProcess returns a manager over a provider of its own, as another process would have.
func (f *fixture) otherProcess(change func(*workspaces.Options)) *workspaces.Manager {
	provider := f.config.New(f)
	require.NotNil(f, provider)
	return f.abandonedManager(provider, change)
}

func findCase(f *fixture) {
	f.tolerate()
	w := f.workspace()
	f.write(w, "f", "x")
	job := f.shell(w, "sleep 300 >/dev/null 2>&1 & printf '%s' $!")

	m := f.otherProcess(nil)
	found, err := f.open(m, runID).Get(f.Context(), "")
	require.NoError(f, err)
	require.Equal(f, w.ID(), found.ID())
	require.Equal(f, "x", string(f.read(found, "f")))
	require.Equal(f, []string{job}, f.alive(found, []string{job}))
	require.WithinDuration(f, w.Info().ExpiresAt, found.Info().ExpiresAt, time.Second)
	require.WithinDuration(f, w.Info().CreatedAt, found.Info().CreatedAt, time.Second)
	again, err := f.tryAcquire(f.Context(), f.open(m, runID), workspaces.AcquireOptions{})
	require.NoError(f, err)
	require.True(f, again.Reused)
	require.Equal(f, w.ID(), again.Workspace.ID())

	_, err = f.open(m, "another run").Get(f.Context(), "")
	require.ErrorIs(f, err, workspaces.ErrNotFound)
	stranger := f.otherProcess(func(o *workspaces.Options) { o.Deployment = f.deployment + "-b" })
	_, err = f.open(stranger, runID).Get(f.Context(), "")
	require.ErrorIs(f, err, workspaces.ErrNotFound)
	f.dispose(found)
	require.Empty(f, f.leftovers(f.deployment))
}

func findCheckoutCase(f *fixture) {
	f.tolerate()
	source := f.repository()
	source.write("f", "one\n")
	commit := source.commit("one")
	allow := func(o *workspaces.Options) { o.AllowFileRepositories = true }
	options := workspaces.AcquireOptions{Repository: source.url(), Ref: "main"}
	w := f.acquire(f.open(f.manager(allow), runID), options)
	f.write(w, "f", "changed\n")

	m := f.otherProcess(allow)
	found, err := f.open(m, runID).Get(f.Context(), "")
	require.NoError(f, err)
	require.Equal(f, w.ID(), found.ID())
	again, err := f.tryAcquire(f.Context(), f.open(m, runID), options)
	require.NoError(f, err)
	require.True(f, again.Reused)
	info := found.Info()
	require.Equal(f, []string{w.Info().Repository, "main", commit}, []string{info.Repository, info.Ref, info.Commit})
	require.Equal(f, "changed\n", string(f.read(found, "f")))
	f.dispose(found)
}

// attachCase has a replica look before the other creates, so that nothing is found and its own create meets
// what is there.
func attachCase(f *fixture) {
	f.tolerate()
	late := f.open(f.otherProcess(nil), runID)
	_, err := late.Get(f.Context(), "")
	require.ErrorIs(f, err, workspaces.ErrNotFound)
	w := f.workspace()
	f.write(w, "f", "x")
	attached := f.acquire(late, workspaces.AcquireOptions{})
	require.Equal(f, w.ID(), attached.ID())
	require.Equal(f, "x", string(f.read(attached, "f")))
	f.dispose(w)

	// At the same time, by the providers themselves.
	options := workspaces.CreateOptions{
		Name: "0123456789abcdef01234567", RunID: "together", Deployment: f.deployment, RepositoryKey: "none",
	}
	created := make([]workspaces.Created, 3)
	errs := make([]error, len(created))
	var all sync.WaitGroup
	for i := range created {
		provider := f.config.New(f)
		all.Go(func() { created[i], errs[i] = provider.Create(f.Context(), options) })
	}
	within(f, 2*f.bound, "some Create", func() bool { all.Wait(); return true })
	made := 0
	for i, c := range created {
		require.NoError(f, errs[i])
		f.Cleanup(func() { _ = c.Workspace.Dispose(context.Background()) })
		require.Equal(f, created[0].Workspace.ID(), c.Workspace.ID())
		if !c.Attached {
			made++
		}
	}
	require.Equal(f, 1, made, "one made it, the others attached")
	f.dispose(created[0].Workspace)
}

func notFoundCase(f *fixture) {
	f.tolerate()
	m := f.manager(nil)
	disposed := f.acquire(f.open(m, "disposed"), workspaces.AcquireOptions{})
	f.dispose(disposed)
	f.acquire(f.open(m, "expired"), workspaces.AcquireOptions{Limits: workspaces.Limits{Lifetime: 2 * time.Second}})
	time.Sleep(2100 * time.Millisecond)
	other := f.otherProcess(nil)
	for _, run := range []string{"disposed", "expired"} {
		_, err := f.open(other, run).Get(f.Context(), "")
		require.Error(f, err, run)
	}
	next := f.acquire(f.open(other, "expired"), workspaces.AcquireOptions{})
	require.True(f, next.Info().ExpiresAt.After(time.Now().Add(time.Minute)))
	require.Equal(f, "on\n", f.shell(next, "echo on"))
	f.dispose(next)
}
