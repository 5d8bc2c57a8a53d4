//go:build linux || darwin

package local

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/carrel-dev/carrel/workspaces"
)

// watchdog is longer than anything here takes on a busy machine.
const watchdog = time.Minute

// Some tests start the test program again as another kind of process; inner says which test
// it is to be.
const inner = "CARREL_LOCAL_INNER"

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

// A sink is where a test lets a command write.
type sink struct {
	mu   sync.Mutex
	text strings.Builder
	grew chan struct{} // has room for one
}

func newSink() *sink { return &sink{grew: make(chan struct{}, 1)} }

func (s *sink) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case s.grew <- struct{}{}:
	default:
	}
	return s.text.Write(p)
}

func (s *sink) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// awaitLines waits until so many whole lines have arrived, and returns what has.
func (s *sink) awaitLines(t *testing.T, n int) []string {
	t.Helper()
	late := time.After(watchdog)
	for {
		if text := s.String(); strings.Count(text, "\n") >= n {
			return strings.Split(strings.TrimSuffix(text, "\n"), "\n")
		}
		select {
		case <-s.grew:
		case <-late:
			t.Fatalf("waited for %d lines in vain, got %q", n, s.String())
		}
	}
}

// A ran is what came of a command.
type ran struct {
	workspaces.Result
	out, err string
	failure  error
	took     time.Duration
}

func attempt(ctx context.Context, w workspaces.Workspace, c workspaces.Command) ran {
	out, errs := newSink(), newSink()
	if c.Stdout == nil {
		c.Stdout = out
	}
	if c.Stderr == nil {
		c.Stderr = errs
	}
	began := time.Now()
	result, err := w.Exec(ctx, c)
	return ran{result, out.String(), errs.String(), err, time.Since(began)}
}

func run(t *testing.T, w workspaces.Workspace, c workspaces.Command) ran {
	t.Helper()
	r := attempt(t.Context(), w, c)
	require.NoError(t, r.failure)
	return r
}

func sh(script string) workspaces.Command {
	return workspaces.Command{Args: []string{"sh", "-c", script}}
}

func shell(t *testing.T, w workspaces.Workspace, script string) string {
	t.Helper()
	r := run(t, w, sh(script))
	require.Zero(t, r.ExitCode, "%s: %s%s", script, r.out, r.err)
	return r.out
}

func newProvider(t *testing.T, options Options) *Provider {
	t.Helper()
	if options.Root == "" {
		options.Root = filepath.Join(t.TempDir(), "root")
	}
	p, err := New(options)
	require.NoError(t, err)
	return p
}

func createOptions() workspaces.CreateOptions {
	return workspaces.CreateOptions{Name: "0123456789abcdef01234567", RunID: "run-1", Deployment: "test"}
}

// create makes a workspace that the test need not dispose.
func create(t *testing.T, p *Provider, options workspaces.CreateOptions) *Workspace {
	t.Helper()
	created, err := p.Create(t.Context(), options)
	require.NoError(t, err)
	w, ok := workspaces.As[*Workspace](created.Workspace)
	require.True(t, ok)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), watchdog)
		defer cancel()
		require.NoError(t, w.Dispose(ctx))
		requireDeserted(t, w)
	})
	return w
}

func newTestWorkspace(t *testing.T) *Workspace {
	t.Helper()
	return create(t, newProvider(t, Options{}), createOptions())
}

// requireDeserted fails when a process of the workspace is alive, whoever started it.
func requireDeserted(t *testing.T, w *Workspace) {
	t.Helper()
	processes, err := processes()
	require.NoError(t, err)
	for _, p := range processes {
		require.NotEqual(t, w.ID(), markedWorkspace(p.environment()), "process %d is left", p.pid)
	}
}

// eventually waits for a condition.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	require.Eventually(t, condition, watchdog, 5*time.Millisecond, what)
}

// isAlive says whether a process is, by its number as text.
func isAlive(t *testing.T, pid string) bool {
	t.Helper()
	var number int
	_, err := fmt.Sscan(pid, &number)
	require.NoError(t, err, "%q is no pid", pid)
	p, ok := lookup(number)
	return ok && !p.dead
}

// again runs one test of this program in a process of its own, started as command is.
func again(t *testing.T, name string, command func(program string, args ...string) *exec.Cmd) {
	t.Helper()
	program, err := os.Executable()
	require.NoError(t, err)
	c := command(program, "-test.run=^"+name+"$", "-test.v", "-test.count=1")
	c.Env = append(os.Environ(), inner+"="+name)
	out, err := c.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "--- PASS: "+name)
}

// isInner says whether the test was started by again.
func isInner(t *testing.T) bool { return os.Getenv(inner) == t.Name() }
