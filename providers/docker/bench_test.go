package docker

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/client"
	"github.com/docker/docker/pkg/stdcopy"
	"github.com/stretchr/testify/require"

	"github.com/carrel-dev/carrel/workspaces"
)

// times are how long calls took, by what made them. It is safe for concurrent use.
type times struct {
	mu    sync.Mutex
	names []string
	all   map[string][]time.Duration
}

// measure calls f and keeps the time under name.
func (m *times) measure(b *testing.B, name string, f func() error) {
	began := time.Now()
	err := f()
	took := time.Since(began)
	if err != nil {
		b.Error(name, ": ", err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.all == nil {
		m.all = make(map[string][]time.Duration)
	}
	if m.all[name] == nil {
		m.names = append(m.names, name)
	}
	m.all[name] = append(m.all[name], took)
}

func percentile(all []time.Duration, p int) time.Duration {
	all = slices.Sorted(slices.Values(all))
	return all[min(len(all)-1, len(all)*p/100)]
}

// report adds p50 and p95 of each, and how many times as long as the first each other one took.
func (m *times) report(b *testing.B) {
	b.ReportMetric(0, "ns/op") // of all together: says nothing
	milliseconds := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	for _, name := range m.names {
		b.ReportMetric(milliseconds(percentile(m.all[name], 50)), name+"-p50-ms")
		b.ReportMetric(milliseconds(percentile(m.all[name], 95)), name+"-p95-ms")
		if name != m.names[0] {
			b.ReportMetric(float64(percentile(m.all[name], 50))/float64(percentile(m.all[m.names[0]], 50)), name+"/"+m.names[0])
		}
	}
}

// apiExec is what an exec takes through the engine's API, and no less: create, start, read, inspect.
func apiExec(ctx context.Context, c *client.Client, id string, stdin io.Reader, argv ...string) error {
	created, err := c.ContainerExecCreate(ctx, id, container.ExecOptions{
		User: "1000:1000", WorkingDir: workspaces.Root, Cmd: argv, AttachStdin: stdin != nil, AttachStdout: true, AttachStderr: true,
	})
	if err != nil {
		return err
	}
	attached, err := c.ContainerExecAttach(ctx, created.ID, container.ExecAttachOptions{})
	if err != nil {
		return err
	}
	defer attached.Close()
	if stdin != nil {
		if _, err := io.Copy(attached.Conn, stdin); err != nil {
			return err
		}
		if err := attached.CloseWrite(); err != nil {
			return err
		}
	}
	var stdout, stderr bytes.Buffer
	if _, err := stdcopy.StdCopy(&stdout, &stderr, attached.Reader); err != nil {
		return err
	}
	state, err := c.ContainerExecInspect(ctx, created.ID)
	if err == nil && state.ExitCode != 0 {
		err = fmt.Errorf("exit code %d: %s", state.ExitCode, stderr.String())
	}
	return err
}

func cli(args ...string) error {
	said, err := exec.Command("docker", args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("docker %s: %w: %s", strings.Join(args, " "), err, said)
	}
	return nil
}

// BenchmarkExec runs true through carrel, the engine's API and the docker command, one after the other, so that all three meet the
// same noise: with a second between calls as a model leaves it, back to back, and eight at once.
func BenchmarkExec(b *testing.B) {
	c := engine(b)
	for _, kind := range []struct {
		name          string
		gap           time.Duration
		inRow, atOnce int
	}{{"gaps", time.Second, 1, 1}, {"back-to-back", 0, 5, 1}, {"eight-at-once", 0, 5, 8}} {
		b.Run(kind.name, func(b *testing.B) {
			w := newStand(b, c, Options{}, nil).workspace(b, workspaces.AcquireOptions{})
			id := containerOf(w)
			var m times
			var mu sync.Mutex
			warm, calls := 0, 0
			ways := []struct {
				name string
				run  func() error
			}{
				{"carrel", func() error {
					r, err := w.Exec(b.Context(), workspaces.Command{Args: []string{"true"}})
					mu.Lock()
					defer mu.Unlock()
					calls++
					if r.Warm {
						warm++
					}
					return err
				}},
				{"api", func() error { return apiExec(b.Context(), c, id, nil, "true") }},
				{"cli", func() error { return cli("exec", id, "true") }},
			}
			for b.Loop() {
				for _, way := range ways {
					time.Sleep(kind.gap)
					for range kind.inRow {
						all(kind.atOnce, func(int) { m.measure(b, way.name, way.run) })
					}
				}
			}
			m.report(b)
			b.ReportMetric(100*float64(warm)/float64(calls), "warm-%")
		})
	}
}

// BenchmarkFiles compares the calls of the file tools with what they would take by hand: an exec of the command through the
// engine's API.
func BenchmarkFiles(b *testing.B) {
	c := engine(b)
	repository := filepath.Join(b.TempDir(), "r")
	for i := range 300 {
		file := filepath.Join(repository, fmt.Sprintf("dir%d/file%d.txt", i%10, i))
		require.NoError(b, os.MkdirAll(filepath.Dir(file), 0o755))
		require.NoError(b, os.WriteFile(file, []byte(strings.Repeat(fmt.Sprintf("line of file %d\n", i), 40)), 0o644))
	}
	for _, args := range [][]string{{"init", "-q"}, {"add", "."}, {"-c", "user.name=b", "-c", "user.email=b@localhost", "commit", "-qm", "b"}} {
		said, err := exec.Command("git", append([]string{"-C", repository}, args...)...).CombinedOutput()
		require.NoError(b, err, "%s", said)
	}
	s := newStand(b, c, Options{}, func(o *workspaces.Options) {
		o.AllowRepo = func(context.Context, string, string) error { return nil }
		o.HostFetch, o.AllowFileRepositories = &workspaces.HostFetch{CacheDir: b.TempDir()}, true
	})
	w := s.workspace(b, workspaces.AcquireOptions{Repository: "file://" + repository})
	shell(b, w, "echo changed >>dir1/file1.txt; echo new >new.txt")
	content := bytes.Repeat([]byte("0123456789abcde\n"), 1000)
	require.NoError(b, w.WriteFile(b.Context(), "written", content))
	for _, kind := range []struct {
		name  string
		ours  func(ctx context.Context) error
		stdin []byte
		plain []string
	}{
		{"read", func(ctx context.Context) error { _, err := w.ReadFile(ctx, "written"); return err }, nil, []string{"cat", "written"}},
		{"write", func(ctx context.Context) error { return w.WriteFile(ctx, "written", content) }, content, []string{"sh", "-c", "cat >written"}},
		{"grep", func(ctx context.Context) error {
			_, err := workspaces.Grep(ctx, w, workspaces.GrepOptions{Pattern: "file 17$"})
			return err
		}, nil, []string{"git", "grep", "-nE", "--untracked", "file 17$"}},
		{"list", func(ctx context.Context) error {
			_, err := workspaces.ListFiles(ctx, w, workspaces.ListOptions{})
			return err
		}, nil, []string{"git", "ls-files", "-co", "--exclude-standard"}},
		{"diff", func(ctx context.Context) error { return workspaces.Diff(ctx, w, io.Discard) }, nil, []string{"git", "diff", "HEAD"}},
	} {
		b.Run(kind.name, func(b *testing.B) {
			var m times
			for b.Loop() {
				time.Sleep(300 * time.Millisecond)
				m.measure(b, "carrel", func() error { return kind.ours(b.Context()) })
				time.Sleep(300 * time.Millisecond)
				var stdin io.Reader
				if kind.stdin != nil {
					stdin = bytes.NewReader(kind.stdin)
				}
				m.measure(b, "api", func() error { return apiExec(b.Context(), c, containerOf(w), stdin, kind.plain...) })
			}
			m.report(b)
		})
	}
}

// BenchmarkLife compares a workspace's creation and disposal with docker run and docker rm of a container that
// is hardened alike.
func BenchmarkLife(b *testing.B) {
	c := engine(b)
	s := newStand(b, c, Options{}, nil)
	var creates, disposals times
	n := 0
	for b.Loop() {
		n++
		run := s.open(b, fmt.Sprint("run-", n))
		creates.measure(b, "create", func() error {
			_, err := run.Acquire(b.Context(), workspaces.AcquireOptions{})
			return err
		})
		name := fmt.Sprintf("%s-%d", s.deployment, n)
		creates.measure(b, "docker-run", func() error {
			return cli("run", "--detach", "--name", name, "--label", labelDeployment+"=bench", "--network", "none", "--read-only", "--user", "1000:1000", "--init",
				"--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--pids-limit", "512", "--memory", "1g", "--cpus", "1", "--tmpfs", "/tmp",
				"--volume", workspaces.Root, "--volume", "/home/sandbox", "--volume", "/cache", testImage, "sleep", "600")
		})
		disposals.measure(b, "dispose", func() error { return run.Release(b.Context(), workspaces.Completed) })
		disposals.measure(b, "docker-rm", func() error { return cli("rm", "--force", "--volumes", name) })
	}
	creates.report(b)
	disposals.report(b)
}
