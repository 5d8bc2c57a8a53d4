package contracttest

import (
	"bytes"
	"context"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/carrel-dev/carrel/workspaces"
)

func outputCases() []Case {
	return []Case{
		{ID: "C32-cap", Rule: "65,536 bytes are whole; of a longer stream the beginning and the end are kept, valid UTF-8 and never more, and the totals count raw bytes.", run: capCase},
		{ID: "C32-invalid-bytes", Rule: "Invalid bytes become U+FFFD, after chunks were joined: a character written in two halves is whole.", run: invalidBytesCase},
		{ID: "W4-live-output", Rule: "Sinks get every byte as it arrives, uncapped, each stream its own.", run: liveOutputCase},
		{ID: "W4-complete-at-return", Rule: "When Exec returns, all that the command wrote has arrived, and nothing comes later.", run: completeAtReturnCase},
		{ID: "W4-blocked-sink-timeout", Rule: "A sink that blocks may block the command, never the return of a timeout.", run: blockedSinkTimeoutCase},
		{ID: "W4-blocked-sink-cancel", Rule: "A sink that blocks may block the command, never the return of a cancel.", run: blockedSinkCancelCase},
	}
}

// printing returns a command that prints content, which it finds in a file, to stdout and stderr.
func (f *fixture) printing(w workspaces.Workspace, content string) workspaces.Command {
	f.write(w, "content", content)
	return sh("cat content; cat content >&2")
}

func capCase(f *fixture) {
	w := f.workspace()
	const most = workspaces.OutputMaxBytes
	for name, c := range map[string]struct {
		content   string
		truncated bool
	}{
		"nothing":              {"", false},
		"exactly":              {strings.Repeat("a", most), false},
		"one more":             {strings.Repeat("a", most+1), true},
		"cut in a character":   {strings.Repeat("a", most-1) + "€€", true},
		"all characters":       {strings.Repeat("€", 30_000), true},
		"lines":                {strings.Repeat("0123456789\n", 20_000), true},
		"invalid, growing":     {strings.Repeat("\xff", most/2), true},
		"invalid, not growing": {strings.Repeat("\xff", 1000) + "ok\n", false},
	} {
		result := f.exec(w, f.printing(w, c.content))
		var want workspaces.Output
		_, _ = want.Write([]byte(c.content))
		for _, stream := range []struct {
			text      string
			truncated bool
			total     int64
		}{{result.Stdout, result.StdoutTruncated, result.StdoutBytes}, {result.Stderr, result.StderrTruncated, result.StderrBytes}} {
			require.Equal(f, want.String(), stream.text, name)
			require.Equal(f, c.truncated, stream.truncated, name)
			require.EqualValues(f, len(c.content), stream.total, name)
			require.LessOrEqual(f, len(stream.text), most, name)
			require.True(f, utf8.ValidString(stream.text), name)
		}
	}
}

func invalidBytesCase(f *fixture) {
	w := f.workspace()
	require.Equal(f, "\uFFFD\uFFFDok\n", f.shell(w, `printf '\377\376ok\n'`))
	require.Equal(f, "a\x00b", f.shell(w, `printf 'a\000b'`))
	result := f.exec(w, sh(`printf '\342\202'; printf '\342' >&2; sleep 0.3; printf '\254'; printf '\202\254' >&2`))
	require.Equal(f, "€", result.Stdout)
	require.Equal(f, "€", result.Stderr)
}

func liveOutputCase(f *fixture) {
	w := f.workspace()
	r := f.start(f.Context(), w, sh(`
		echo first; echo problem >&2
		while [ ! -e go ]; do sleep 0.05; done
		head -c 300000 /dev/zero | tr '\0' y; echo; echo last`))
	r.await("first\n")
	f.eventually(f.bound, "stderr arrives", func() bool { return r.stderr.String() == "problem\n" })
	f.write(w, "go", "")
	end := r.wait(f.bound)
	require.NoError(f, end.err)
	require.Equal(f, "first\n"+strings.Repeat("y", 300_000)+"\nlast\n", r.out.String())
	require.Equal(f, "problem\n", r.stderr.String())
	require.True(f, end.StdoutTruncated)
}

func completeAtReturnCase(f *fixture) {
	w := f.workspace()
	for range 10 {
		r := f.start(f.Context(), w, sh(`head -c 100000 /dev/zero | tr '\0' y; printf end; printf end >&2`))
		end := r.wait(f.bound)
		out, stderr := r.out.String(), r.stderr.String()
		require.NoError(f, end.err)
		require.Equal(f, strings.Repeat("y", 100_000)+"end", out)
		require.Equal(f, "end", stderr)
		require.EqualValues(f, 100_003, end.StdoutBytes)
		require.True(f, strings.HasSuffix(end.Stdout, "yend"))
		require.Equal(f, "end", end.Stderr)
		time.Sleep(20 * time.Millisecond)
		require.Equal(f, out, r.out.String(), "written to after Exec had returned")
	}
	// A command that is stopped has no more to say either.
	ctx, cancel := context.WithCancel(f.Context())
	defer cancel()
	r := f.start(ctx, w, sh("while :; do echo x; done"))
	r.await("x\n")
	cancel()
	r.wait(f.bound)
	out := r.out.String()
	time.Sleep(100 * time.Millisecond)
	require.Equal(f, out, r.out.String(), "written to after Exec had returned")
}

// A blockedSink blocks in its first write until it is released.
type blockedSink struct {
	entered, release chan struct{}
	writes           atomic.Int32
}

func (f *fixture) blockedSink() *blockedSink {
	s := &blockedSink{entered: make(chan struct{}, 1), release: make(chan struct{})}
	f.Cleanup(s.unblock)
	return s
}

func (s *blockedSink) unblock() {
	select {
	case <-s.release:
	default:
		close(s.release)
	}
}

func (s *blockedSink) Write(p []byte) (int, error) {
	s.writes.Add(1)
	select {
	case s.entered <- struct{}{}:
	default:
	}
	<-s.release
	return len(p), nil
}

func blockedSinkTimeoutCase(f *fixture) {
	w := f.workspace()
	s := f.blockedSink()
	r := f.attempt(f.Context(), w, workspaces.Command{Args: []string{"yes"}, Timeout: time.Second, Stdout: s}, time.Second+f.patience)
	require.NoError(f, r.err)
	require.True(f, r.TimedOut)
	writes := s.writes.Load()
	s.unblock()
	require.Equal(f, "on\n", f.shell(w, "echo on"))
	require.Equal(f, writes, s.writes.Load(), "a write began after Exec had returned")
}

func blockedSinkCancelCase(f *fixture) {
	w := f.workspace()
	s := f.blockedSink()
	ctx, cancel := context.WithCancel(f.Context())
	defer cancel()
	done := make(chan ran, 1)
	go func() {
		result, err := w.Exec(ctx, workspaces.Command{Args: []string{"yes"}, Stderr: &bytes.Buffer{}, Stdout: s})
		done <- ran{result, err}
	}()
	within(f, f.bound, "the first write", func() struct{} { return <-s.entered })
	cancel()
	r := within(f, f.patience, "a cancelled Exec", func() ran { return <-done })
	require.ErrorIs(f, r.err, context.Canceled)
	writes := s.writes.Load()
	s.unblock()
	require.Equal(f, "on\n", f.shell(w, "echo on"))
	require.Equal(f, writes, s.writes.Load(), "a write began after Exec had returned")
}
