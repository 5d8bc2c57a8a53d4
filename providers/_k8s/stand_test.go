package k8s

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/carrel-dev/carrel/workspaces"
)

// A stand is a manager in a real cluster. At its end nothing of its deployment may be left.
type stand struct {
	*workspaces.Manager
	*cluster
	deployment string
}

func newStand(t testing.TB, options Options, change func(o *workspaces.Options)) *stand {
	t.Helper()
	if options.Profile == "" {
		options.Profile = Hardened
	}
	c := clusterFor(t, options.Profile)
	o := workspaces.Options{
		Deployment: "test-" + newID(),
		MaxPerRun:  100,
		OnError:    func(err error) { t.Logf("in the background: %v", err) },
	}
	if change != nil {
		change(&o)
	}
	m, err := workspaces.NewManager(c.provider(t, options), o)
	require.NoError(t, err)
	s := &stand{m, c, o.Deployment}
	t.Cleanup(func() {
		s.close(t)
		require.Eventually(t, func() bool {
			left, err := c.leftovers(context.Background(), o.Deployment)
			return err == nil && len(left) == 0
		}, bounded, 100*time.Millisecond)
	})
	return s
}

func (s *stand) close(t testing.TB) {
	ctx, cancel := context.WithTimeout(context.Background(), workspaces.CloseTimeout)
	defer cancel()
	if err := s.Close(ctx); err != nil {
		t.Logf("close: %v", err)
	}
}

func (s *stand) open(t testing.TB, runID string) *workspaces.Run {
	t.Helper()
	run, err := s.Open(runID)
	require.NoError(t, err)
	return run
}

func (s *stand) workspace(t testing.TB, options workspaces.AcquireOptions) workspaces.Workspace {
	t.Helper()
	acquired, err := s.open(t, "run").Acquire(t.Context(), options)
	require.NoError(t, err)
	return acquired.Workspace
}

func shell(t testing.TB, w workspaces.Workspace, script string) string {
	t.Helper()
	r, err := w.Exec(t.Context(), workspaces.Command{Args: []string{"sh", "-c", script}})
	require.NoError(t, err)
	require.Zero(t, r.ExitCode, "%s\n%s%s", script, r.Stdout, r.Stderr)
	return r.Stdout
}

func podOf(w workspaces.Workspace) string { return w.Info().Resource["k8s.pod.name"] }

// within fails the test where f takes longer than bounded.
func within(t testing.TB, what string, f func() error) error {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- f() }()
	select {
	case err := <-done:
		return err
	case <-time.After(bounded):
		require.Fail(t, what+" does not return")
		return nil
	}
}

// all runs f n times at once.
func all(n int, f func(i int)) {
	var group sync.WaitGroup
	for i := range n {
		group.Go(func() { f(i) })
	}
	group.Wait()
}

// started is a sink that says when something was first written to it.
type startedSink struct {
	once  sync.Once
	began chan struct{}
}

func newStarted() *startedSink { return &startedSink{began: make(chan struct{})} }

func (s *startedSink) Write(p []byte) (int, error) {
	s.once.Do(func() { close(s.began) })
	return len(p), nil
}
