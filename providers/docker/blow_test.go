package docker

import (
	"context"
	"os"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/client"
	"github.com/stretchr/testify/require"

	"github.com/carrel-dev/carrel/workspaces"
)

// A blow is what happens to a container while it is used.
type blow struct {
	name string
	hit  func(c *client.Client, id string) error
	why  string // what the error matches; empty: the container stands still, and goes on later
}

func blows() []blow {
	ctx := context.Background()
	return []blow{
		{"kill", func(c *client.Client, id string) error { return c.ContainerKill(ctx, id, "KILL") }, "exit code 137"},
		{"remove", func(c *client.Client, id string) error {
			return c.ContainerRemove(ctx, id, container.RemoveOptions{Force: true, RemoveVolumes: true})
		}, "was removed|exit code 137"}, // which comes first
		{"stop", func(c *client.Client, id string) error {
			second := 1
			return c.ContainerStop(ctx, id, container.StopOptions{Timeout: &second})
		}, "exit code 137"},
		{"freeze", func(c *client.Client, id string) error { return signal(c, id, syscall.SIGSTOP) }, ""},
	}
}

// signal sends a signal to all processes of a container. SIGSTOP stands for docker pause: the cgroup freezer of version 1 is
// known to hang in virtual machines, and the engine with it.
func signal(c *client.Client, id string, s syscall.Signal) error {
	top, err := c.ContainerTop(context.Background(), id, []string{"-eo", "pid"})
	if err != nil {
		return err
	}
	for _, process := range top.Processes {
		pid, err := strconv.Atoi(process[0])
		if err != nil {
			return err
		}
		_ = syscall.Kill(pid, s) // it may have ended
	}
	return nil
}

// sharesProcesses skips a test where the engine's processes are not this machine's.
func sharesProcesses(t *testing.T, c *client.Client, id string) {
	t.Helper()
	found, err := c.ContainerInspect(t.Context(), id)
	require.NoError(t, err)
	if _, err := os.Stat("/proc/" + strconv.Itoa(found.State.Pid) + "/root" + workspaces.Root); err != nil {
		t.Skipf("docker: the engine runs elsewhere, its processes cannot be stopped (%v)", err)
	}
}

func TestBlowInExec_W17(t *testing.T) {
	engine(t)
	for _, b := range blows() {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			c := engine(t)
			s := newStand(t, c, Options{}, nil)
			w := s.workspace(t, workspaces.AcquireOptions{})
			timeout := 100 * time.Second
			if b.why == "" {
				sharesProcesses(t, c, containerOf(w))
				timeout = 2 * time.Second
			}
			out := newStarted()
			ran := make(chan error, 1)
			var result workspaces.Result
			go func() {
				var err error
				result, err = w.Exec(t.Context(), workspaces.Command{Args: []string{"sh", "-c", "echo on; sleep 60"}, Timeout: timeout, Stdout: out})
				ran <- err
			}()
			<-out.began
			require.NoError(t, b.hit(c, containerOf(w)))
			err := within(t, "exec", func() error { return <-ran })
			if b.why == "" {
				require.NoError(t, err)
				require.True(t, result.TimedOut, "%+v", result)
				require.NoError(t, signal(c, containerOf(w), syscall.SIGCONT))
				require.Equal(t, "on\n", shell(t, w, "echo on"))
				require.Equal(t, "0\n", shell(t, w, `grep -c "^sleep 60" /proc/[0-9]*/cmdline | grep -vc ':0$' || :`))
				return
			}
			requireGone(t, s, w, err, b.why)
		})
	}
}

func TestBlowInRead_W17(t *testing.T) {
	engine(t)
	for _, b := range blows() {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			c := engine(t)
			s := newStand(t, c, Options{}, nil)
			w := s.workspace(t, workspaces.AcquireOptions{})
			if b.why == "" {
				sharesProcesses(t, c, containerOf(w))
			}
			require.NoError(t, w.WriteFile(t.Context(), "f", make([]byte, 1<<20)))
			read := make(chan error, 1)
			go func() {
				for {
					data, err := w.ReadFile(t.Context(), "f")
					if err == nil && len(data) != 1<<20 {
						t.Errorf("a read of 1 MiB has %d bytes", len(data))
					}
					if err != nil {
						read <- err
						return
					}
				}
			}()
			time.Sleep(100 * time.Millisecond) // it has begun
			require.NoError(t, b.hit(c, containerOf(w)))
			if b.why == "" {
				select { // in a minute
				case err := <-read:
					require.ErrorIs(t, err, workspaces.ErrUnavailable)
				case <-time.After(2 * bounded):
					require.Fail(t, "the read does not return")
				}
				require.NoError(t, signal(c, containerOf(w), syscall.SIGCONT))
				require.Equal(t, "on\n", shell(t, w, "echo on"))
				return
			}
			requireGone(t, s, w, within(t, "read", func() error { return <-read }), b.why)
		})
	}
}

// requireGone wants that a call found the workspace gone, that the next does, and that the run gets another one.
func requireGone(t *testing.T, s *stand, w workspaces.Workspace, err error, why string) {
	t.Helper()
	require.ErrorIs(t, err, workspaces.ErrGone)
	require.Regexp(t, why, err.Error())
	_, err = w.Exec(t.Context(), workspaces.Command{Args: []string{"true"}})
	require.ErrorIs(t, err, workspaces.ErrGone)
	require.Equal(t, "on\n", shell(t, s.workspace(t, workspaces.AcquireOptions{}), "echo on"))
}

func TestBlowInCreate_W17(t *testing.T) {
	engine(t)
	for _, b := range blows() {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			c := engine(t)
			s := newStand(t, c, Options{StartTimeout: 10 * time.Second}, nil)
			run := s.open(t, "run")
			type end struct {
				workspaces.Acquired
				error
			}
			made := make(chan end, 1)
			go func() {
				acquired, err := run.Acquire(t.Context(), workspaces.AcquireOptions{})
				made <- end{acquired, err}
			}()
			id := ""
			for id == "" { // until it runs
				all, err := c.ContainerList(t.Context(), container.ListOptions{Filters: ours(s.deployment, "")})
				require.NoError(t, err)
				if len(all) > 0 {
					id = all[0].ID
				}
			}
			if b.why == "" {
				sharesProcesses(t, c, id)
			}
			_ = b.hit(c, id) // it may be on its way out for another reason
			var created end
			require.NoError(t, within(t, "acquire", func() error { created = <-made; return nil }))
			switch {
			case created.error != nil:
				t.Log(created.error)
				requireAny(t, created.error, workspaces.ErrGone, workspaces.ErrUnavailable)
			case b.why != "":
				_, err := created.Workspace.Exec(t.Context(), workspaces.Command{Args: []string{"true"}})
				require.ErrorIs(t, err, workspaces.ErrGone)
			}
			acquired, err := run.Acquire(t.Context(), workspaces.AcquireOptions{})
			require.NoError(t, err)
			require.Equal(t, "on\n", shell(t, acquired.Workspace, "echo on"))
		})
	}
}
