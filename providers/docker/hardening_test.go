package docker

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/events"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/mount"
	"github.com/stretchr/testify/require"

	"github.com/carrel-dev/carrel/workspaces"
)

// TestInspect compares what the engine says of a container with what the specification asks.
func TestInspect_P1_P2_P3_P7(t *testing.T) {
	t.Setenv("CARREL_HOST_SECRET", "s3cret")
	c := engine(t)
	for _, profile := range []Profile{Hardened, Toolchain} {
		t.Run(string(profile), func(t *testing.T) {
			s := newStand(t, c, Options{Profile: profile, Labels: map[string]string{"team": "a"}, Env: map[string]string{"A": "provider"}}, nil)
			w := s.workspace(t, workspaces.AcquireOptions{Limits: workspaces.Limits{CPU: "500m", Memory: "256Mi", PIDs: 99, Lifetime: time.Hour}, Env: map[string]string{"B": "call"}})
			found, err := c.ContainerInspect(t.Context(), containerOf(w))
			require.NoError(t, err)
			config, host, info := found.Config, found.HostConfig, w.Info()

			user, readOnly, added := "1000:1000", true, []string(nil)
			if profile == Toolchain {
				user, readOnly = "0:0", false
				added = []string{"CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "SETUID", "SETGID", "KILL"}
			}
			require.Equal(t, user, config.User)
			require.Equal(t, readOnly, host.ReadonlyRootfs)
			require.Equal(t, []string{"ALL"}, []string(host.CapDrop))
			for i, name := range host.CapAdd {
				host.CapAdd[i] = strings.TrimPrefix(name, "CAP_")
			}
			require.ElementsMatch(t, added, host.CapAdd)
			require.Equal(t, []string{"no-new-privileges"}, host.SecurityOpt, "and the engine's default seccomp profile")
			require.False(t, host.Privileged)
			require.Empty(t, host.PidMode)
			require.Empty(t, host.UTSMode)
			require.Empty(t, host.UsernsMode)
			require.Equal(t, container.IPCModePrivate, host.IpcMode)
			require.Empty(t, host.Binds)
			require.Empty(t, host.Devices)
			require.Empty(t, host.VolumesFrom)
			require.Empty(t, host.PortBindings)
			require.Equal(t, container.NetworkMode("none"), host.NetworkMode)
			require.False(t, host.AutoRemove, "it would lose the reason of gone")
			require.Contains(t, []container.RestartPolicyMode{"", container.RestartPolicyDisabled}, host.RestartPolicy.Name)
			require.Equal(t, "none", host.LogConfig.Type)
			require.Equal(t, []string{"NONE"}, config.Healthcheck.Test)

			require.Equal(t, int64(500_000_000), host.NanoCPUs)
			require.Equal(t, int64(256<<20), host.Memory)
			require.Equal(t, int64(256<<20), host.MemorySwap, "no swap")
			require.Equal(t, int64(99), *host.PidsLimit)
			require.Equal(t, map[string]string{"/tmp": "rw,exec,nosuid,nodev,mode=1777,size=1073741824"}, host.Tmpfs)

			mounted := map[string]mount.Type{}
			for _, m := range found.Mounts {
				mounted[m.Destination] = m.Type
			}
			require.Equal(t, map[string]mount.Type{"/workspace": mount.TypeVolume, "/home/sandbox": mount.TypeVolume, "/cache": mount.TypeVolume}, mounted)

			require.Equal(t, strconv.FormatInt(info.ExpiresAt.Add(time.Second-1).Unix(), 10), found.Args[len(found.Args)-1], "the main process ends at the expiry")
			for name, value := range map[string]string{
				"managed-by": "carrel", "component": "workspace", "deployment": s.deployment, "run": "run", "workspace": w.ID(), "image": testImage,
				"repository": "", "ref": "", "created-at": info.CreatedAt.UTC().Format(time.RFC3339Nano), "expires-at": info.ExpiresAt.UTC().Format(time.RFC3339Nano),
			} {
				require.Equal(t, value, config.Labels["carrel.dev/"+name], name)
			}
			require.Equal(t, "a", config.Labels["team"])
			require.Equal(t, "carrel-", found.Name[1:8])

			env := map[string]string{}
			for _, entry := range config.Env {
				name, value, _ := strings.Cut(entry, "=")
				env[name] = value
			}
			delete(env, "PATH") // the image's
			require.Equal(t, map[string]string{
				"A": "provider", "B": "call", "HOME": "/home/sandbox", "WORKSPACE": "/workspace", "CI": "true", "GIT_TERMINAL_PROMPT": "0",
				"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "safe.directory", "GIT_CONFIG_VALUE_0": "*",
				"XDG_CACHE_HOME": "/cache/xdg", "npm_config_cache": "/cache/npm", "PIP_CACHE_DIR": "/cache/pip",
				"GOMODCACHE": "/cache/go-mod", "GOCACHE": "/cache/go-build", "COMPOSER_CACHE_DIR": "/cache/composer",
			}, env)
		})
	}
}

// TestInside looks at the same from within.
func TestInside_P1_P2_P3(t *testing.T) {
	c := engine(t)
	for profile, want := range map[Profile]struct{ id, bounding, effective, root string }{
		Hardened: {"1000:1000", "0000000000000000", "0000000000000000", "read-only"},
		// CHOWN 0, DAC_OVERRIDE 1, FOWNER 3, FSETID 4, KILL 5, SETGID 6, SETUID 7
		Toolchain: {"0:0", "00000000000000fb", "00000000000000fb", "writable"},
	} {
		t.Run(string(profile), func(t *testing.T) {
			w := newStand(t, c, Options{Profile: profile}, nil).workspace(t, workspaces.AcquireOptions{})
			require.Equal(t, want.id, strings.TrimSpace(shell(t, w, `echo "$(id -u):$(id -g)"`)))
			for _, dir := range []string{workspaces.Root, "/tmp", home, cache} {
				require.Equal(t, "ran\n", shell(t, w, fmt.Sprintf(`printf '#!/bin/sh\necho ran\n' >%[1]s/tool && chmod +x %[1]s/tool && %[1]s/tool`, dir)), dir)
			}
			status := shell(t, w, `sed -n 's/^\(Cap[A-Z][a-z]*\|NoNewPrivs\|Seccomp\):[ \t]*/\1=/p' /proc/self/status`)
			for _, line := range []string{"CapBnd=" + want.bounding, "CapEff=" + want.effective, "CapPrm=" + want.effective, "CapInh=0000000000000000", "CapAmb=0000000000000000", "NoNewPrivs=1", "Seccomp=2"} {
				if profile == Toolchain && strings.HasPrefix(line, "CapInh") {
					continue // engines before 20.10.14 set it, to no effect under no new privileges
				}
				require.Contains(t, status, line+"\n")
			}
			require.Equal(t, want.root, strings.TrimSpace(shell(t, w, `touch /etc/probe 2>/dev/null && echo writable || echo read-only`)))
			tmp := shell(t, w, `grep ' /tmp ' /proc/mounts; stat -c %a /tmp; df -B1 --output=size /tmp | tail -n 1`)
			for _, part := range []string{"tmpfs", "nosuid", "nodev", "\n1777\n", "1073741824"} {
				require.Contains(t, tmp, part)
			}
			require.NotContains(t, tmp, "noexec")
			require.Equal(t, "sleep\n", shell(t, w, `cat /proc/1/comm`))
			require.Equal(t, "0\n", shell(t, w, `(sleep 0.1 &) ; sleep 0.5; grep -l '^State:.Z' /proc/[0-9]*/status 2>/dev/null | wc -l`), "nobody reaps")
			require.Empty(t, shell(t, w, `ls /sys/class/net | grep -v '^lo$' || :`), "network none")

			// Everything that is not process 1 dies; the workspace does not.
			r, err := w.Exec(t.Context(), workspaces.Command{Args: []string{"sh", "-c", "kill -9 -1"}})
			if err == nil {
				require.Equal(t, 137, r.ExitCode)
			} else {
				requireAny(t, err, workspaces.ErrOutcomeUnknown)
			}
			require.Equal(t, "on\n", shell(t, w, "echo on"))
		})
	}
}

// A fork bomb meets the limit, the stop still works, and nobody else notices.
func TestForkBomb_R5_W5(t *testing.T) {
	s := newStand(t, engine(t), Options{}, nil)
	w := s.workspace(t, workspaces.AcquireOptions{Limits: workspaces.Limits{PIDs: 64}})
	other, err := s.open(t, "other").Acquire(t.Context(), workspaces.AcquireOptions{})
	require.NoError(t, err)
	r, err := w.Exec(t.Context(), workspaces.Command{Timeout: 3 * time.Second, Args: []string{"python3", "-c", `
import os, time
while True:
    try: os.fork()
    except OSError: time.sleep(0.01)`}})
	require.NoError(t, err)
	require.True(t, r.TimedOut, "%+v", r)
	require.Equal(t, "fine\n", shell(t, other.Workspace, "echo fine"))
	require.Equal(t, "again\n", shell(t, w, "echo again"))
	require.Equal(t, "0\n", shell(t, w, `grep -l python /proc/[0-9]*/comm 2>/dev/null | wc -l`), "of the bomb something is left")
}

// Out of memory, failed, and dead are three things.
func TestOutOfMemory_W18(t *testing.T) {
	c := engine(t)
	w := newStand(t, c, Options{}, nil).workspace(t, workspaces.AcquireOptions{Limits: workspaces.Limits{Memory: "64Mi"}})
	exec := func(args ...string) (workspaces.Result, error) {
		return w.Exec(t.Context(), workspaces.Command{Args: args, Timeout: 30 * time.Second})
	}
	r, err := exec("python3", "-c", "x = bytearray(200 << 20)")
	require.NoError(t, err)
	require.Equal(t, 137, r.ExitCode)
	require.True(t, r.OOMKilled)

	r, err = exec("sh", "-c", "exit 137")
	require.NoError(t, err)
	require.Equal(t, 137, r.ExitCode)
	require.False(t, r.OOMKilled, "it was the command before")

	require.NoError(t, c.ContainerKill(t.Context(), containerOf(w), "KILL"))
	_, err = exec("true")
	require.ErrorIs(t, err, workspaces.ErrGone)
	require.ErrorContains(t, err, "exit code 137")
}

// In the toolchain profile packages can be installed.
func TestInstall_P1(t *testing.T) {
	w := newStand(t, engine(t), Options{Profile: Toolchain}, nil).workspace(t, workspaces.AcquireOptions{})
	out := shell(t, w, `dpkg --install /opt/carrel-test/hello.deb && apt-get --version >/dev/null && hello && apt-get remove --yes hello 2>&1`)
	require.Contains(t, out, "Hello, world!")
	require.Empty(t, shell(t, w, "command -v hello || :"))
}

// An image whose userland is not what carrel needs is refused, and says why.
func TestSelfTest_P4(t *testing.T) {
	c := engine(t)
	const busybox = "carrel-test/busybox:1"
	if _, err := c.ImageInspect(t.Context(), busybox); err != nil {
		t.Skipf("docker: the engine has no image %s (%v); make engines-up makes it", busybox, err)
	}
	s := newStand(t, c, Options{Image: busybox}, nil)
	_, err := s.open(t, "run").Acquire(t.Context(), workspaces.AcquireOptions{})
	require.ErrorIs(t, err, workspaces.ErrUnsupported)
	require.ErrorContains(t, err, busybox)
	require.ErrorContains(t, err, "timeout")
	t.Log(err)
	require.Empty(t, s.left(t))
}

// An image that is not there is named, and nothing is made.
func TestNoImage_P5(t *testing.T) {
	s := newStand(t, engine(t), Options{Image: "carrel-test/absent:1"}, nil)
	_, err := s.open(t, "run").Acquire(t.Context(), workspaces.AcquireOptions{})
	require.Error(t, err)
	require.ErrorContains(t, err, "carrel-test/absent:1")
	require.Empty(t, s.left(t))
}

// An engine that cannot reach a registry says so inside a stream that began with success, or at once.
func TestPullError_P5(t *testing.T) {
	c := engine(t)
	p, err := New(Options{Client: c, Image: "localhost:1/absent:1"})
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), bounded)
	defer cancel()
	_, err = p.Create(ctx, workspaces.CreateOptions{Name: "0123456789abcdef01234567", RunID: "run", Deployment: "test-pull"})
	require.Error(t, err)
	require.NoError(t, ctx.Err())
	require.ErrorContains(t, err, "localhost:1/absent:1")
}

// A read and a write take one exec each: that of the session which is opened in the place of the one they used.
func TestOneExec_S3(t *testing.T) {
	c := engine(t)
	w := newStand(t, c, Options{}, nil).workspace(t, workspaces.AcquireOptions{})
	began := time.Now()
	execs := func() (n int) {
		messages, failures := c.Events(t.Context(), events.ListOptions{
			Since: strconv.FormatInt(began.Unix()-60, 10), Until: strconv.FormatInt(time.Now().Unix()+1, 10),
			Filters: filters.NewArgs(filters.Arg("container", containerOf(w)), filters.Arg("event", "exec_create")),
		})
		for {
			select {
			case <-messages:
				n++
			case err := <-failures:
				require.ErrorIs(t, err, io.EOF)
				return n
			}
		}
	}
	settled := func() int {
		last := -1
		for n := execs(); n != last; n = execs() { // each takes a second
			last = n
		}
		return last
	}
	shell(t, w, "echo x >f")
	before := settled()
	for range 3 {
		_, err := w.ReadFile(t.Context(), "f")
		require.NoError(t, err)
		require.NoError(t, w.WriteFile(t.Context(), "dir/g", []byte("y")))
	}
	require.Equal(t, before+6, settled())
}
