package docker

import (
	"cmp"
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/docker/docker/client"
	"github.com/stretchr/testify/require"

	"github.com/carrel-dev/carrel/workspaces"
)

// testImage is one that carrel can work in; the user may name another.
var testImage = cmp.Or(os.Getenv("CARREL_TEST_SANDBOX_IMAGE"), "carrel-test/sandbox:1")

// bounded is when a call that the engine fails must have returned at the latest, on a busy machine.
const bounded = time.Minute

// engine returns a client of a real engine, or skips the test: make test starts one where it can, and says loudly at its end
// what was not tested.
func engine(t testing.TB, options ...client.Opt) *client.Client {
	t.Helper()
	c, err := client.NewClientWithOpts(append([]client.Opt{client.FromEnv, client.WithAPIVersionNegotiation()}, options...)...)
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	if _, err = c.Ping(context.Background()); err != nil {
		t.Skipf("docker: no engine (%v); make engines-up starts one", err)
	}
	if _, err := c.ImageInspect(context.Background(), testImage); err != nil {
		t.Skipf("docker: the engine has no image %s (%v); make engines-up makes it", testImage, err)
	}
	return c
}

// A stand is a manager on a real engine. At its end nothing of its deployment may be left.
type stand struct {
	*workspaces.Manager
	client     *client.Client
	provider   *Provider
	deployment string
}

func newStand(t testing.TB, c *client.Client, options Options, change func(o *workspaces.Options)) *stand {
	t.Helper()
	options.Client, options.Pull = c, PullNever
	if options.Image == "" {
		options.Image = testImage
	}
	if options.Network == "" {
		options.Network = "none"
	}
	p, err := New(options)
	require.NoError(t, err)
	o := workspaces.Options{
		Deployment: "test-" + newID(),
		MaxPerRun:  100,
		OnError:    func(err error) { t.Logf("in the background: %v", err) },
	}
	if change != nil {
		change(&o)
	}
	m, err := workspaces.NewManager(p, o)
	require.NoError(t, err)
	s := &stand{m, c, p, o.Deployment}
	t.Cleanup(func() {
		s.close(t)
		require.Empty(t, s.left(t))
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

// left lists what the engine has of the deployment, once what is under way has ended.
func (s *stand) left(t testing.TB) []string {
	var found []string
	for range 100 {
		var err error
		if found, err = leftovers(context.Background(), s.client, s.deployment); err == nil && len(found) == 0 {
			return nil
		}
		time.Sleep(100 * time.Millisecond)
	}
	return found
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

func containerOf(w workspaces.Workspace) string { return w.Info().Resource["container.id"] }

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

// requireAny wants an error that matches one of those given.
func requireAny(t testing.TB, err error, targets ...error) {
	t.Helper()
	for _, target := range targets {
		if errors.Is(err, target) {
			return
		}
	}
	require.Fail(t, "not the error that was to be expected", "%v", err)
}
