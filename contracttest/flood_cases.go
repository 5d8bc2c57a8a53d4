package contracttest

import (
	"runtime"
	"strings"
	"sync/atomic"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/carrel-dev/carrel/workspaces"
)

func floodCases() []Case {
	return []Case{
		{ID: "W3-memory", Rule: "1 GiB of output costs the host less than 16 MiB of memory.", alone: true, run: memoryCase},
		{ID: "C33-flood", Rule: "A flood on one stream or both ends with the timeout and holds nothing up.", run: floodCase},
		{ID: "C33-tiny-chunks", Rule: "Many tiny chunks cost no quadratic time.", run: tinyChunksCase},
		{ID: "C33-broken-pipe", Rule: "A writer whose reader has ended dies of SIGPIPE, silently.", run: brokenPipeCase},
	}
}

// A counter counts what is written to it.
type counter struct{ bytes atomic.Int64 }

func (c *counter) Write(p []byte) (int, error) {
	c.bytes.Add(int64(len(p)))
	return len(p), nil
}

func memoryCase(f *fixture) {
	w := f.workspace()
	f.shell(w, "true")
	live := func() int64 {
		runtime.GC()
		var stats runtime.MemStats
		runtime.ReadMemStats(&stats)
		return int64(stats.HeapAlloc)
	}
	before, out := live(), &counter{}
	done := make(chan ran, 1)
	go func() {
		result, err := w.Exec(f.Context(), workspaces.Command{Args: []string{"head", "-c", "1073741824", "/dev/zero"}, Stdout: out})
		done <- ran{result, err}
	}()
	most := int64(0)
	r := within(f, 2*f.bound, "Exec", func() ran {
		for {
			select {
			case r := <-done:
				return r
			case <-time.After(50 * time.Millisecond):
				most = max(most, live()-before)
			}
		}
	})
	require.NoError(f, r.err)
	require.Zero(f, r.ExitCode)
	require.EqualValues(f, 1<<30, r.StdoutBytes)
	require.EqualValues(f, 1<<30, out.bytes.Load())
	require.True(f, r.StdoutTruncated)
	require.LessOrEqual(f, len(r.Stdout), workspaces.OutputMaxBytes)
	require.Less(f, max(most, live()-before), int64(16<<20), "bytes of growth")
}

func floodCase(f *fixture) {
	w := f.workspace()
	for script, streams := range map[string]int{"yes": 1, "yes >&2 & yes": 2} {
		command := sh(script)
		command.Timeout = time.Second
		r := f.attempt(f.Context(), w, command, command.Timeout+f.patience)
		require.NoError(f, r.err, script)
		require.True(f, r.TimedOut, script)
		require.True(f, r.StdoutTruncated, script)
		require.Equal(f, streams == 2, r.StderrTruncated, script)
		require.LessOrEqual(f, len(r.Stdout), workspaces.OutputMaxBytes)
		require.Greater(f, r.StdoutBytes, int64(workspaces.OutputMaxBytes))
		require.True(f, strings.HasPrefix(r.Stdout, "y\ny\n"))
	}
	require.Equal(f, "on\n", f.shell(w, "echo on"))
}

func tinyChunksCase(f *fixture) {
	w := f.workspace()
	result := f.exec(w, sh("i=0; while [ $i -lt 100000 ]; do printf x; i=$((i+1)); done"))
	require.Zero(f, result.ExitCode)
	require.EqualValues(f, 100_000, result.StdoutBytes)
	require.True(f, result.StdoutTruncated)
	require.False(f, result.TimedOut)
}

func brokenPipeCase(f *fixture) {
	w := f.workspace()
	result := f.soon(w, sh("yes | head -n 1; echo rc=$?"))
	require.Equal(f, "y\nrc=0\n", result.Stdout)
	require.Empty(f, result.Stderr)
}
