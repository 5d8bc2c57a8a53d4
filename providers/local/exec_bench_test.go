//go:build linux || darwin

package local

import (
	"bytes"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/carrel-dev/carrel/workspaces"
)

// BenchmarkExec runs the same shell through a managed workspace and through bare os/exec, one after
// the other in each iteration, so that both meet the same noise. "ratio" is the one's time over the other's.
func BenchmarkExec(b *testing.B) {
	for name, script := range map[string]string{
		"true":   ":",
		"output": "head -c 200000 /dev/zero",
	} {
		b.Run(name, func(b *testing.B) {
			provider, err := New(Options{Root: b.TempDir()})
			require.NoError(b, err)
			manager, err := workspaces.NewManager(provider, workspaces.Options{})
			require.NoError(b, err)
			defer func() { require.NoError(b, manager.Close(b.Context())) }()
			run, err := manager.Open("bench")
			require.NoError(b, err)
			acquired, err := run.Acquire(b.Context(), workspaces.AcquireOptions{})
			require.NoError(b, err)
			command := sh(script)

			var ours, bare time.Duration
			for b.Loop() {
				began := time.Now()
				result, err := acquired.Workspace.Exec(b.Context(), command)
				ours += time.Since(began)
				require.NoError(b, err)
				require.Zero(b, result.ExitCode)

				began = time.Now()
				var stdout, stderr bytes.Buffer
				child := exec.CommandContext(b.Context(), command.Args[0], command.Args[1:]...)
				child.Stdout, child.Stderr = &stdout, &stderr
				require.NoError(b, child.Run())
				bare += time.Since(began)
			}
			b.ReportMetric(float64(ours)/float64(bare), "ratio")
			b.ReportMetric(float64(ours.Microseconds())/float64(b.N), "carrel-µs/op")
			b.ReportMetric(float64(bare.Microseconds())/float64(b.N), "os/exec-µs/op")
		})
	}
}
