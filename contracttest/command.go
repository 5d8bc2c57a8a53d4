package contracttest

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/carrel-dev/carrel/workspaces"
)

// ran is what came of a command.
type ran struct {
	workspaces.Result
	err error
}

// sh is a command that is a script, its arguments $1 and so on.
func sh(script string, args ...string) workspaces.Command {
	return workspaces.Command{Args: append([]string{"sh", "-c", script, "sh"}, args...)}
}

// attempt runs a command that ends, or must return, within limit.
func (f *fixture) attempt(ctx context.Context, workspace workspaces.Workspace, command workspaces.Command, limit time.Duration) ran {
	f.Helper()
	return within(f, limit, "Exec", func() ran {
		result, err := workspace.Exec(ctx, command)
		return ran{result, err}
	})
}

// exec runs a command that is not to fail; it may exit as it likes.
func (f *fixture) exec(workspace workspaces.Workspace, command workspaces.Command) workspaces.Result {
	f.Helper()
	r := f.attempt(f.Context(), workspace, command, f.bound)
	require.NoError(f, r.err)
	return r.Result
}

// soon is exec for a command that must return at once.
func (f *fixture) soon(workspace workspaces.Workspace, command workspaces.Command) workspaces.Result {
	f.Helper()
	r := f.attempt(f.Context(), workspace, command, f.patience)
	require.NoError(f, r.err)
	return r.Result
}

// shell runs a script that must succeed and returns what it printed.
func (f *fixture) shell(workspace workspaces.Workspace, script string, args ...string) string {
	f.Helper()
	result := f.exec(workspace, sh(script, args...))
	require.Zero(f, result.ExitCode, "%s\n%s%s", script, result.Stdout, result.Stderr)
	return result.Stdout
}

// running is a command that has been started.
type running struct {
	f           *fixture
	out, stderr *sink
	done        chan ran
}

func (f *fixture) start(ctx context.Context, workspace workspaces.Workspace, command workspaces.Command) *running {
	r := &running{f: f, out: newSink(), stderr: newSink(), done: make(chan ran, 1)}
	command.Stdout, command.Stderr = r.out, r.stderr
	go func() {
		result, err := workspace.Exec(ctx, command)
		r.done <- ran{result, err}
	}()
	return r
}

// await waits until the command has printed a text.
func (r *running) await(text string) {
	r.f.Helper()
	timer := time.NewTimer(r.f.bound)
	defer timer.Stop()
	for !strings.Contains(r.out.String(), text) {
		select {
		case <-r.out.grew:
		case end := <-r.done:
			r.done <- end
			if strings.Contains(r.out.String(), text) {
				return
			}
			r.f.Fatalf("the command ended before it printed %q: %v, %+v", text, end.err, end.Result)
		case <-timer.C:
			r.f.Fatalf("the command has not printed %q after %s, but %q", text, r.f.bound, r.out)
		}
	}
}

// wait waits until Exec returns, which must be within limit.
func (r *running) wait(limit time.Duration) ran {
	r.f.Helper()
	return within(r.f, limit, "Exec", func() ran { return <-r.done })
}

// A sink is what a command's output is written to.
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

// aliveScript prints which of its arguments are the number of a process that is alive. What has ended and was not
// reaped is not. Only builtins: it works at a limit on processes.
const aliveScript = `
for pid; do
	{ read -r stat; } 2>/dev/null </proc/$pid/stat || continue
	case ${stat##*') '} in
	[ZXx]*) ;;
	*) echo "$pid" ;;
	esac
done
exit 0`

// alive returns which of the processes are.
func (f *fixture) alive(workspace workspaces.Workspace, pids []string) []string {
	f.Helper()
	return strings.Fields(f.shell(workspace, aliveScript, pids...))
}

// awaitDeath waits until none of the processes is alive.
func (f *fixture) awaitDeath(workspace workspaces.Workspace, pids []string) {
	f.Helper()
	var alive []string
	for deadline := time.Now().Add(f.patience + workspaces.StopTime); ; time.Sleep(100 * time.Millisecond) {
		if alive = f.alive(workspace, pids); len(alive) == 0 {
			return
		}
		if time.Now().After(deadline) {
			f.Fatalf("%d of %d processes are alive: %s", len(alive), len(pids),
				f.shell(workspace, `for pid; do tr '\0' ' ' <"/proc/$pid/cmdline"; echo; done; exit 0`, alive...))
		}
	}
}

// pids returns the numbers of processes that a script has written to the file pids.
func (f *fixture) pids(workspace workspaces.Workspace) []string {
	pids := strings.Fields(string(f.read(workspace, "pids")))
	require.NotEmpty(f, pids)
	return pids
}
