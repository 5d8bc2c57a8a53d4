package tools

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cloudwego/eino/components/tool"
	"github.com/cloudwego/eino/schema"
	"github.com/stretchr/testify/require"

	"github.com/carrel-dev/carrel/workspaces"
)

// stream calls bash as a streaming agent does.
func (s *scene) stream(t *testing.T, a ...any) *schema.StreamReader[string] {
	t.Helper()
	reader, err := s.tools[Bash].(tool.StreamableTool).StreamableRun(s.ctx, args(a).String())
	require.NoError(t, err)
	return reader
}

// collect reads a stream to its end.
func collect(t *testing.T, reader *schema.StreamReader[string]) (chunks []string) {
	t.Helper()
	defer reader.Close()
	for {
		chunk, err := reader.Recv()
		if errors.Is(err, io.EOF) {
			return chunks
		}
		require.NoError(t, err)
		chunks = append(chunks, chunk)
	}
}

// proves T10: the chunks of a stream, one after the other, are what the same call returns at once.
func TestStream_T10_EqualsInvoked(t *testing.T) {
	s := newRoom(t)
	for name, a := range map[string][]any{
		"no output":             {"command", "true"},
		"short":                 {"command", "echo hi"},
		"no final newline":      {"command", "printf hi"},
		"slow":                  {"command", "for i in 1 2 3 4 5 6 7 8; do echo $i; sleep 0.1; done"},
		"200 KB":                {"command", `head -c 200000 /dev/zero | tr '\0' y`},
		"200 KB in slow pieces": {"command", `for i in 1 2 3 4 5; do head -c 40000 /dev/zero | tr '\0' $i; sleep 0.1; done`},
		"exactly the head":      {"command", `head -c 16384 /dev/zero | tr '\0' y`},
		"exactly the cap":       {"command", `head -c 65536 /dev/zero | tr '\0' y`},
		"one more than the cap": {"command", `head -c 65537 /dev/zero | tr '\0' y`},
		"wide characters":       {"command", `for i in 1 2 3; do printf '\344\270'; sleep 0.1; printf '\255'; done; yes 中 | head -n 40000`},
		"invalid bytes":         {"command", `printf '\377\376ok\n'; sleep 0.1; printf '\344'`},
		"timeout":               {"command", "echo partial; exec sleep 600", "timeout_seconds", 1},
		"timeout of a flood":    {"command", "yes | head -c 300000; exec sleep 600", "timeout_seconds", 1},
		"exit code":             {"command", "echo hi; exit 3"},
		"signal":                {"command", "echo hi; kill -9 $$"},
		"stderr interleaved":    {"command", "for i in 1 2 3 4; do echo o$i; echo e$i >&2; sleep 0.05; done; exit 1"},
		"the root":              {"command", `for i in 1 2 3; do printf %s "$PWD"; sleep 0.1; printf '/x\n'; done; printf %s "$PWD"`},
		"a long command":        {"command", strings.Repeat("# comment\n", 20_000) + "echo hi; nosuch"},
		"not found":             {"command", "nosuch"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			invoked := s.call(t, Bash, a...)
			chunks := collect(t, s.stream(t, a...))
			require.NotEmpty(t, chunks, "an empty stream fails the run")
			require.Equal(t, invoked, strings.Join(chunks, ""))
			for _, chunk := range chunks {
				require.NotEmpty(t, chunk)
			}
		})
	}
}

// proves T10: the beginning of the output arrives while the command runs, and of a long one no more than that.
func TestStream_T10_Live(t *testing.T) {
	for name, written := range map[string]int{"10 bytes": 10, "16 KiB": workspaces.OutputHeadBytes, "100 KB": 100_000} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newRoom(t)
			reader := s.stream(t, "command", fmt.Sprintf(`head -c %d /dev/zero | tr '\0' a; while [ ! -e go ]; do sleep 0.02; done; echo late`, written))
			live := ""
			for len(live) < min(written, workspaces.OutputHeadBytes) {
				chunk, err := reader.Recv()
				require.NoError(t, err)
				live += chunk
			}
			require.Equal(t, strings.Repeat("a", min(written, workspaces.OutputHeadBytes)), live)
			s.put(t, "go", "") // the command has not ended: only now can it
			rest := strings.Join(collect(t, reader), "")
			require.Contains(t, rest, "late\n[")
			require.True(t, strings.HasSuffix(rest, "\n[bash: exit code 0]"), rest)
			require.Equal(t, written > workspaces.OutputMaxBytes, strings.Contains(rest, " bytes left out]\n"))
		})
	}
}

// proves T10 and T5: what is refused is one chunk.
func TestStream_T10_Refused(t *testing.T) {
	s := newRoom(t)
	for _, arguments := range []string{"", "{", `{"command":""}`, `{"command":"echo \u0000"}`, `{"cmd":"ls"}`, `{"command":"ls","workspace":"other"}`, `{"command":"ls","timeout_seconds":-1}`} {
		invoked, err := s.tools[Bash].InvokableRun(s.ctx, arguments)
		require.NoError(t, err)
		require.True(t, strings.HasPrefix(invoked, ErrorPrefix))
		reader, err := s.tools[Bash].(tool.StreamableTool).StreamableRun(s.ctx, arguments)
		require.NoError(t, err)
		require.Equal(t, []string{invoked}, collect(t, reader), arguments)
	}
}

// proves T4 and T10: what fails while the stream runs is its last chunk, but for the end of the run's context.
func TestStream_T4_Failures(t *testing.T) {
	fails := func(_ context.Context, command workspaces.Command, _ execFunc) (workspaces.Result, error) {
		_, _ = io.WriteString(command.Stdout, "bash\nhalf")
		if strings.Contains(command.Args[len(command.Args)-1], "panic") {
			panic("out of luck")
		}
		return workspaces.Result{}, fmt.Errorf("the daemon is away: %w", workspaces.ErrUnavailable)
	}
	s := newScene(t, workspaces.Options{}, changeExec(fails))
	s.create(t, "")
	for command, want := range map[string]string{
		"fail":  "half\nError: the daemon is away: unavailable. The workspace may well still be there: try again in a moment.",
		"panic": "half\nError: panic in the provider: out of luck.",
	} {
		require.Equal(t, want, s.call(t, Bash, "command", command))
		require.Equal(t, want, strings.Join(collect(t, s.stream(t, "command", command)), ""))
	}

	s = newRoom(t)
	ctx, cancel := context.WithCancel(s.ctx)
	reader, err := s.tools[Bash].(tool.StreamableTool).StreamableRun(ctx, args{"command", "echo hi; exec sleep 600"}.String())
	require.NoError(t, err)
	defer reader.Close()
	chunk, err := reader.Recv()
	require.NoError(t, err)
	require.Equal(t, "hi\n", chunk)
	cancel()
	_, err = reader.Recv()
	require.ErrorIs(t, err, context.Canceled)

	_, err = s.tools[Bash].(tool.StreamableTool).StreamableRun(ctx, `{"command":"true"}`)
	require.ErrorIs(t, err, context.Canceled)
}

// proves T10: who closes a stream early ends the command at its next output; who never reads holds nothing up.
func TestStream_T10_Reader(t *testing.T) {
	s := newRoom(t)
	reader := s.stream(t, "command", "echo $$ > pid; while :; do echo x; sleep 0.02; done")
	_, err := reader.Recv()
	require.NoError(t, err)
	reader.Close()
	requireDead(t, s.file(t, "pid"))

	unread := s.stream(t, "command", "for i in 1 2 3 4 5; do head -c 100000 /dev/zero; sleep 0.06; done; echo done > done")
	require.Eventually(t, func() bool {
		_, err := os.Stat(filepath.Join(s.root(t), "done"))
		return err == nil
	}, time.Minute, 10*time.Millisecond)
	require.True(t, strings.HasSuffix(strings.Join(collect(t, unread), ""), "[bash: exit code 0]"))
}
