//go:build linux

package contracttest

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/carrel-dev/carrel/workspaces"
)

func record(limit time.Duration, body func(r *recorder)) (failures, logs []string) {
	r := newRecorder("case", nil)
	r.run(limit, func() { body(r) })
	return r.report()
}

func TestRecorderCollects(t *testing.T) {
	var order []string
	var dir string
	failures, logs := record(time.Minute, func(r *recorder) {
		r.Cleanup(func() { order = append(order, "first") })
		r.Cleanup(func() {
			require.ErrorIs(t, r.Context().Err(), context.Canceled)
			order = append(order, "second")
			r.Error("in a clean-up")
			r.FailNow()
		})
		dir = r.TempDir()
		require.DirExists(t, dir)
		require.Equal(t, "case", r.Name())
		r.Logf("a %s", "log")
		r.Errorf("%d", 1)
		require.NoError(r, errors.New("stop"))
		r.Error("never")
	})
	require.Len(t, failures, 3)
	require.Equal(t, "1", failures[0])
	require.Contains(t, failures[1], "stop")
	require.Equal(t, "in a clean-up", failures[2])
	require.Equal(t, []string{"a log"}, logs)
	require.Equal(t, []string{"second", "first"}, order)
	require.NoDirExists(t, dir)
}

// A case is passed or failed, never skipped.
func TestRecorderStops(t *testing.T) {
	for name, body := range map[string]func(r *recorder){
		"skipped: no git": func(r *recorder) { r.Skip("no git") },
		"skipped":         func(r *recorder) { r.SkipNow() },
		"failed":          func(r *recorder) { r.FailNow() },
		"panic: for the test": func(*recorder) {
			panic("for the test")
		},
	} {
		failures, _ := record(time.Minute, body)
		require.Len(t, failures, 1)
		require.True(t, strings.HasPrefix(failures[0], name), failures[0])
	}
	failures, _ := record(time.Minute, func(*recorder) {})
	require.Empty(t, failures)
}

func TestRecorderWatchdog(t *testing.T) {
	cleaned := false
	failures, _ := record(50*time.Millisecond, func(r *recorder) {
		r.Cleanup(func() { cleaned = true })
		<-r.Context().Done()
	})
	require.Len(t, failures, 1)
	require.Contains(t, failures[0], "has not ended after 50ms")
	require.Contains(t, failures[0], "TestRecorderWatchdog", "where it hangs")
	require.True(t, cleaned)
}

func TestConfigIsChecked(t *testing.T) {
	good := testConfig(flaw{}, 0)
	filled, err := good.filled()
	require.NoError(t, err)
	require.Equal(t, patience, filled.Patience)
	for name, spoil := range map[string]func(c *Config){
		"no New":       func(c *Config) { c.New = nil },
		"no Leftovers": func(c *Config) { c.Leftovers = nil },
		"unknown":      func(c *Config) { c.Capabilities = append(c.Capabilities, "fly") },
		"twice":        func(c *Config) { c.Capabilities = append(c.Capabilities, Probes) },
		"no Remove":    func(c *Config) { c.Remove = nil },
		"no Pause":     func(c *Config) { c.Capabilities = append(c.Capabilities, Pauses) },
		"Pause undeclared": func(c *Config) {
			c.Pause = func(context.Context, workspaces.Workspace) (func() error, error) { return nil, nil }
		},
		"Remove undeclared": func(c *Config) { c.Capabilities = nil },
		"Sandbox alone":     func(c *Config) { c.Capabilities, c.Remove = []Capability{Sandbox}, nil },
	} {
		c := testConfig(flaw{}, 0)
		spoil(&c)
		_, err := c.filled()
		require.Error(t, err, name)
	}
}

// TestRunPrintsRules runs the suite, in a process of its own, for a provider that cannot be made.
func TestRunPrintsRules(t *testing.T) {
	const inner = "CARREL_CONTRACT_INNER"
	if os.Getenv(inner) != "" {
		c := testConfig(flaw{}, 0)
		c.New = func(t testing.TB) workspaces.Provider {
			t.Fatal("no provider today")
			return nil
		}
		Run(t, c)
		return
	}
	program, err := os.Executable()
	require.NoError(t, err)
	c := exec.CommandContext(t.Context(), program, "-test.run=^TestRunPrintsRules$", "-test.v")
	c.Env = append(os.Environ(), inner+"=1")
	out, err := c.CombinedOutput()
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit, "%s", out)
	for _, c := range Cases() {
		if missing := testConfig(flaw{}, 0).missing(c.Needs); len(missing) > 0 {
			require.Contains(t, string(out), c.ID+" needs ")
			continue
		}
		require.Contains(t, string(out), "--- FAIL: TestRunPrintsRules/"+c.ID)
		require.Contains(t, string(out), "the rule: "+c.Rule)
	}
	require.Contains(t, string(out), "no provider today")
}
