package docker

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/docker/docker/client"
	"github.com/stretchr/testify/require"

	"github.com/carrel-dev/carrel/workspaces"
)

// A privateEngine is an engine of the test's own, which it may stop: with state, containerd and control group of its own, and
// without a network.
type privateEngine struct {
	dir, cgroup string
	dockerd     *exec.Cmd
	client      *client.Client
}

func newPrivateEngine(t *testing.T) *privateEngine {
	t.Helper()
	from := engine(t)
	if os.Getuid() != 0 {
		t.Skip("docker: an engine that can be stopped and started takes root")
	}
	dir, err := os.MkdirTemp("", "carrel-") // short: it holds sockets
	require.NoError(t, err)
	e := &privateEngine{dir: dir, cgroup: filepath.Base(dir)}
	t.Cleanup(func() { e.remove(t) })
	toml := fmt.Sprintf(`version = 2
root = %[1]q
state = %[2]q
disabled_plugins = ["io.containerd.grpc.v1.cri", "io.containerd.internal.v1.opt"]
[grpc]
address = %[3]q
`, e.path("containerd"), e.path("run"), e.path("containerd.sock"))
	require.NoError(t, os.WriteFile(e.path("containerd.toml"), []byte(toml), 0o600))
	require.NoError(t, os.WriteFile(e.path("daemon.json"), []byte("{}"), 0o600))
	containerd := e.daemon(t, "containerd", "--config", e.path("containerd.toml"))
	t.Cleanup(func() { e.halt(t, containerd) })
	require.Eventually(t, func() bool { _, err := os.Stat(e.path("containerd.sock")); return err == nil }, bounded, 50*time.Millisecond)

	e.client, err = client.NewClientWithOpts(client.WithHost("unix://"+e.path("docker.sock")), client.WithAPIVersionNegotiation())
	require.NoError(t, err)
	t.Cleanup(func() { e.client.Close() })
	e.start(t)
	t.Cleanup(func() { e.stop(t) })
	image, err := from.ImageSave(t.Context(), []string{testImage})
	require.NoError(t, err)
	loaded, err := e.client.ImageLoad(t.Context(), image)
	require.NoError(t, err)
	loaded.Body.Close()
	require.NoError(t, image.Close())
	require.Eventually(t, func() bool { _, err := e.client.ImageInspect(t.Context(), testImage); return err == nil }, bounded, 50*time.Millisecond)
	return e
}

func (e *privateEngine) path(name string) string { return filepath.Join(e.dir, name) }

// daemon starts a program that Debian has in a directory that not every PATH holds.
func (e *privateEngine) daemon(t *testing.T, name string, args ...string) *exec.Cmd {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		if path, err = exec.LookPath("/usr/sbin/" + name); err != nil {
			t.Skipf("docker: an engine that can be stopped and started takes %s on this machine", name)
		}
	}
	log, err := os.OpenFile(e.path(name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	require.NoError(t, err)
	defer log.Close()
	command := exec.Command(path, args...)
	command.Stdout, command.Stderr = log, log
	command.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	require.NoError(t, command.Start())
	return command
}

func (e *privateEngine) start(t *testing.T, args ...string) {
	t.Helper()
	e.dockerd = e.daemon(t, "dockerd", append([]string{
		"--config-file", e.path("daemon.json"), "--host", "unix://" + e.path("docker.sock"), "--containerd", e.path("containerd.sock"),
		"--data-root", e.path("data"), "--exec-root", e.path("exec"), "--pidfile", e.path("dockerd.pid"),
		"--bridge", "none", "--iptables=false", "--ip6tables=false", "--cgroup-parent", "/" + e.cgroup,
		"--exec-opt", "native.cgroupdriver=cgroupfs", "--shutdown-timeout", "2",
	}, args...)...)
	require.Eventually(t, func() bool { _, err := e.client.Ping(t.Context()); return err == nil }, bounded, 50*time.Millisecond)
}

func (e *privateEngine) stop(t *testing.T) { e.halt(t, e.dockerd) }

func (e *privateEngine) halt(t *testing.T, daemon *exec.Cmd) {
	if daemon.ProcessState != nil {
		return
	}
	require.NoError(t, daemon.Process.Signal(syscall.SIGTERM))
	watchdog := time.AfterFunc(bounded, func() { _ = daemon.Process.Kill() })
	defer watchdog.Stop()
	_ = daemon.Wait() // how it ends does not matter
}

// remove takes away what the daemons leave on the machine.
func (e *privateEngine) remove(t *testing.T) {
	if t.Failed() {
		log, _ := os.ReadFile(e.path("dockerd.log"))
		t.Logf("the engine said:\n%s", log)
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	require.NoError(t, err)
	lines := strings.Split(string(mounts), "\n")
	slices.Reverse(lines)
	for _, line := range lines {
		if fields := strings.Fields(line); len(fields) > 4 && strings.HasPrefix(fields[4], e.dir+"/") {
			_ = syscall.Unmount(fields[4], syscall.MNT_DETACH)
		}
	}
	groups, err := filepath.Glob("/sys/fs/cgroup/*/" + e.cgroup)
	require.NoError(t, err)
	for _, group := range append(groups, "/sys/fs/cgroup/"+e.cgroup) {
		_ = exec.Command("find", group, "-depth", "-type", "d", "-exec", "rmdir", "{}", "+").Run() // there may be none
	}
	require.NoError(t, os.RemoveAll(e.dir))
}

// The engine is stopped and started again under a live workspace, which ends with it, or outlives it where the engine is told so.
func TestEngineRestart_W17(t *testing.T) {
	e := newPrivateEngine(t)
	for name, args := range map[string][]string{"containers end": nil, "live restore": {"--live-restore"}} {
		t.Run(name, func(t *testing.T) {
			e.stop(t)
			e.start(t, args...)
			s := newStand(t, e.client, Options{}, nil)
			w := s.workspace(t, workspaces.AcquireOptions{})
			shell(t, w, "echo kept >file")
			out := newStarted()
			ran := make(chan error, 1)
			go func() {
				_, err := w.Exec(t.Context(), workspaces.Command{Args: []string{"sh", "-c", "echo on; sleep 100"}, Timeout: 100 * time.Second, Stdout: out})
				ran <- err
			}()
			<-out.began

			e.stop(t)
			err := within(t, "the exec under way", func() error { return <-ran })
			requireAny(t, err, workspaces.ErrGone, workspaces.ErrUnavailable, workspaces.ErrOutcomeUnknown)
			t.Log("under way: ", err)
			err = within(t, "an exec without an engine", func() error {
				_, err := w.Exec(t.Context(), workspaces.Command{Args: []string{"true"}})
				return err
			})
			requireAny(t, err, workspaces.ErrGone, workspaces.ErrUnavailable)
			t.Log("without an engine: ", err)
			err = within(t, "a create without an engine", func() error {
				_, err := s.open(t, "another").Acquire(t.Context(), workspaces.AcquireOptions{})
				return err
			})
			require.ErrorIs(t, err, workspaces.ErrUnavailable)

			e.start(t, args...)
			if args != nil {
				require.Equal(t, "kept\n", shell(t, w, "cat file"))
				return
			}
			_, err = w.Exec(t.Context(), workspaces.Command{Args: []string{"true"}})
			require.ErrorIs(t, err, workspaces.ErrGone)
			t.Log("afterwards: ", err)
			require.Equal(t, "on\n", shell(t, s.workspace(t, workspaces.AcquireOptions{}), "echo on"))
		})
	}
}
