package k8s

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

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"k8s.io/client-go/rest"

	"github.com/carrel-dev/carrel/workspaces"
)

// Of a process that is to hold a workspace until it is killed: where, as whom, and of which deployment.
const (
	holderOf        = "CARREL_TEST_HOLDER_OF"
	holderNamespace = "CARREL_TEST_HOLDER_NAMESPACE"
	holderHost      = "CARREL_TEST_HOLDER_HOST"
	holderCA        = "CARREL_TEST_HOLDER_CA"
	holderToken     = "CARREL_TEST_HOLDER_TOKEN"
)

func TestMain(m *testing.M) {
	if deployment := os.Getenv(holderOf); deployment != "" {
		if err := hold(deployment); err != nil {
			fmt.Println(err)
		}
		os.Exit(1)
	}
	code := m.Run()
	if err := removeClusters(); err != nil {
		fmt.Println(err)
		code = 1
	}
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Println(err)
			code = 1
		}
	}
	os.Exit(code)
}

func hold(deployment string) error {
	config := &rest.Config{
		Host: os.Getenv(holderHost), BearerToken: os.Getenv(holderToken),
		TLSClientConfig: rest.TLSClientConfig{CAData: []byte(os.Getenv(holderCA))},
	}
	p, err := New(Options{Config: config, Namespace: os.Getenv(holderNamespace), Image: testImage, Pull: "Never", Requests: small})
	if err != nil {
		return err
	}
	m, err := workspaces.NewManager(p, workspaces.Options{Deployment: deployment})
	if err != nil {
		return err
	}
	for i, script := range []string{"(while echo beat >>beats; do sleep 0.1; done) >/dev/null 2>&1 & echo kept >file", "echo left >file"} {
		run, err := m.Open(fmt.Sprint("run-", i))
		if err != nil {
			return err
		}
		acquired, err := run.Acquire(context.Background(), workspaces.AcquireOptions{Limits: workspaces.Limits{Lifetime: time.Duration(10-9*i) * time.Hour}})
		if err != nil {
			return err
		}
		if _, err := acquired.Workspace.Exec(context.Background(), workspaces.Command{Args: []string{"sh", "-c", script}}); err != nil {
			return err
		}
	}
	fmt.Println("holding")
	select {}
}

// The process that holds workspaces is killed: another one goes on in its run's, and of two that collect at once the rest goes.
func TestHolderKilled_M8_M10(t *testing.T) {
	s := newStand(t, Options{}, nil)
	ca := s.config.CAData
	if len(ca) == 0 {
		var err error
		ca, err = os.ReadFile(s.config.CAFile)
		require.NoError(t, err)
	}
	holder := exec.Command(os.Args[0])
	holder.Env = append(os.Environ(), holderOf+"="+s.deployment, holderNamespace+"="+s.namespace, holderHost+"="+s.config.Host,
		holderToken+"="+s.config.BearerToken, holderCA+"="+string(ca))
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

	acquired, err := s.open(t, "run-0").Acquire(t.Context(), workspaces.AcquireOptions{})
	require.NoError(t, err)
	require.True(t, acquired.Reused)
	w := acquired.Workspace
	require.Equal(t, "kept\n", shell(t, w, "cat file"))
	require.Equal(t, "grows\n", shell(t, w, `before=$(wc -l <beats); sleep 1; [ $(wc -l <beats) -gt $before ] && echo grows`))

	var mu sync.Mutex
	removed := 0
	all(2, func(int) {
		later, err := workspaces.NewManager(s.provider(t, Options{}), workspaces.Options{
			Deployment: s.deployment, Now: func() time.Time { return time.Now().Add(2 * time.Hour) },
		})
		if err != nil {
			t.Error(err)
			return
		}
		n, err := later.Collect(context.Background())
		if err != nil {
			t.Error(err)
		}
		mu.Lock()
		removed += n
		mu.Unlock()
		if err := later.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	require.Positive(t, removed)
	left, err := s.leftovers(t.Context(), s.deployment)
	require.NoError(t, err)
	require.Len(t, left, 1)
	require.Equal(t, "kept\n", shell(t, w, "cat file"))
}

// Forty pods at once, and five commands in each.
func TestForty(t *testing.T) {
	const many, commands = 40, 5
	s := newStand(t, Options{StartTimeout: 5 * time.Minute}, nil)
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
	})
	worked := time.Since(began)
	began = time.Now()
	s.close(t)
	slices.Sort(acquires)
	slices.Sort(execs)
	if len(acquires) < many || len(execs) < many*commands {
		return
	}
	t.Logf("%d pods with %d commands each: %s, closed in %s; acquire p50 %s p95 %s; exec p50 %s p95 %s, %d%% warm", many, commands,
		worked.Round(time.Millisecond), time.Since(began).Round(time.Millisecond), acquires[many/2].Round(time.Millisecond), acquires[many*95/100].Round(time.Millisecond),
		execs[len(execs)/2].Round(time.Millisecond), execs[len(execs)*95/100].Round(time.Millisecond), 100*warm/len(execs))
}
