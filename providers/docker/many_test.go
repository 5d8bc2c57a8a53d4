package docker

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/client"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/carrel-dev/carrel/workspaces"
)

const (
	holderOf = "CARREL_TEST_HOLDER_OF" // a deployment: this process is to hold workspaces of it until it is killed
	holds    = 20
)

func TestMain(m *testing.M) {
	if deployment := os.Getenv(holderOf); deployment != "" {
		if err := hold(deployment); err != nil {
			fmt.Println(err)
		}
		os.Exit(1)
	}
	goleak.VerifyTestMain(m)
}

func managerOf(c *client.Client, o workspaces.Options) (*workspaces.Manager, error) {
	p, err := New(Options{Client: c, Image: testImage, Pull: PullNever, Network: "none"})
	if err != nil {
		return nil, err
	}
	return workspaces.NewManager(p, o)
}

// hold makes workspaces of as many runs, with a background job in the first one's, which lives longest.
func hold(deployment string) error {
	c, err := client.NewClientWithOpts(client.FromEnv, client.WithAPIVersionNegotiation())
	if err != nil {
		return err
	}
	m, err := managerOf(c, workspaces.Options{Deployment: deployment})
	if err != nil {
		return err
	}
	failed := make(chan error, holds)
	all(holds, func(i int) {
		run, err := m.Open(fmt.Sprint("run-", i))
		if err != nil {
			failed <- err
			return
		}
		lifetime := time.Hour
		if i == 0 {
			lifetime = 10 * time.Hour
		}
		acquired, err := run.Acquire(context.Background(), workspaces.AcquireOptions{Limits: workspaces.Limits{Lifetime: lifetime}})
		if err == nil && i == 0 {
			_, err = acquired.Workspace.Exec(context.Background(), workspaces.Command{Args: []string{"sh", "-c", "(while echo beat >>beats; do sleep 0.1; done) >/dev/null 2>&1 & echo kept >file"}})
		}
		failed <- err
	})
	for range holds {
		if err := <-failed; err != nil {
			return err
		}
	}
	fmt.Println("holding")
	select {}
}

// The process that holds workspaces is killed: another one goes on in its run's, and the collection takes the rest, and
// nothing that is not carrel's or not of the deployment.
func TestHolderKilled_M8_M10(t *testing.T) {
	c := engine(t)
	deployment := "test-" + newID()
	t.Cleanup(func() {
		left, err := leftovers(context.Background(), c, deployment)
		require.NoError(t, err)
		require.Empty(t, left)
	})
	stranger := func(name string, labels map[string]string) string {
		made, err := c.ContainerCreate(t.Context(), &container.Config{Image: testImage, Entrypoint: []string{"sleep", "600"}, Labels: labels}, &container.HostConfig{NetworkMode: "none"}, nil, nil, name+"-"+deployment)
		require.NoError(t, err)
		t.Cleanup(func() {
			require.NoError(t, c.ContainerRemove(context.Background(), made.ID, container.RemoveOptions{Force: true, RemoveVolumes: true}))
		})
		require.NoError(t, c.ContainerStart(t.Context(), made.ID, container.StartOptions{}))
		return made.ID
	}
	old := time.Now().Add(-time.Hour).UTC().Format(time.RFC3339Nano)
	strangers := []string{
		stranger("plain", nil),
		stranger("carrel", map[string]string{labelDeployment: deployment, labelRun: "run-1", "carrel.dev/expires-at": old}),
		stranger("other", map[string]string{
			"carrel.dev/managed-by": "carrel", "carrel.dev/component": "workspace", labelDeployment: deployment + "-2", labelRun: "run-1", "carrel.dev/expires-at": old,
		}),
	}

	holder := exec.Command(os.Args[0])
	holder.Env = append(os.Environ(), holderOf+"="+deployment)
	holder.Stderr = os.Stderr
	out, err := holder.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, holder.Start())
	said, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "holding\n", said)
	require.NoError(t, holder.Process.Kill())
	_, _ = io.Copy(io.Discard, out)
	require.Error(t, holder.Wait())

	second, err := managerOf(c, workspaces.Options{Deployment: deployment})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, second.Close(context.Background())) })
	run, err := second.Open("run-0")
	require.NoError(t, err)
	acquired, err := run.Acquire(t.Context(), workspaces.AcquireOptions{})
	require.NoError(t, err)
	require.True(t, acquired.Reused)
	w := acquired.Workspace
	require.Equal(t, "kept\n", shell(t, w, "cat file"))
	require.Equal(t, "grows\n", shell(t, w, `before=$(wc -l <beats); sleep 1; [ $(wc -l <beats) -gt $before ] && echo grows`))
	require.NoError(t, w.WriteFile(t.Context(), "file", []byte("second\n")))

	later, err := managerOf(c, workspaces.Options{Deployment: deployment, Now: func() time.Time { return time.Now().Add(2 * time.Hour) }})
	require.NoError(t, err)
	removed, err := later.Collect(t.Context())
	require.NoError(t, err)
	require.Equal(t, holds-1, removed)
	require.NoError(t, later.Close(context.Background()))

	require.Equal(t, "second\n", shell(t, w, "cat file"))
	for _, id := range strangers {
		found, err := c.ContainerInspect(t.Context(), id)
		require.NoError(t, err)
		require.True(t, found.State.Running)
	}
	require.NoError(t, run.Release(t.Context(), workspaces.Completed))
}

// Fifty workspaces at once, and ten commands in each.
func TestFifty(t *testing.T) {
	const many, commands = 50, 10
	s := newStand(t, engine(t), Options{}, nil)
	var mu sync.Mutex
	var acquires, execs []time.Duration
	warm := 0
	began := time.Now()
	all(many, func(i int) {
		run, err := s.Open(fmt.Sprint("run-", i))
		if err != nil {
			t.Error(err)
			return
		}
		start := time.Now()
		acquired, err := run.Acquire(t.Context(), workspaces.AcquireOptions{})
		if err != nil {
			t.Error(err)
			return
		}
		mu.Lock()
		acquires = append(acquires, time.Since(start))
		mu.Unlock()
		for n := range commands {
			want := fmt.Sprint(i, " ", n, "\n")
			r, err := acquired.Workspace.Exec(t.Context(), workspaces.Command{Args: []string{"sh", "-c", `echo "$1" >>said; tail -n 1 said`, "sh", strings.TrimSpace(want)}})
			if err != nil || r.Stdout != want {
				t.Errorf("command %d in workspace %d: %+v, %v", n, i, r, err)
			}
			mu.Lock()
			execs = append(execs, r.Duration)
			if r.Warm {
				warm++
			}
			mu.Unlock()
		}
		if out := shell(t, acquired.Workspace, "wc -l <said"); strings.TrimSpace(out) != fmt.Sprint(commands) {
			t.Errorf("workspace %d has %s lines", i, out)
		}
	})
	worked := time.Since(began)
	began = time.Now()
	s.close(t)
	slices.Sort(acquires)
	slices.Sort(execs)
	if len(acquires) < many || len(execs) < many*commands {
		return
	}
	t.Logf("%d workspaces with %d commands each: %s, closed in %s; acquire p50 %s p95 %s; exec p50 %s p95 %s, %d%% warm", many, commands,
		worked.Round(time.Millisecond), time.Since(began).Round(time.Millisecond), acquires[many/2].Round(time.Millisecond), acquires[many*95/100].Round(time.Millisecond),
		execs[len(execs)/2].Round(time.Millisecond), execs[len(execs)*95/100].Round(time.Millisecond), 100*warm/len(execs))
}

// all runs f n times at once.
func all(n int, f func(i int)) {
	var group sync.WaitGroup
	for i := range n {
		group.Go(func() { f(i) })
	}
	group.Wait()
}
