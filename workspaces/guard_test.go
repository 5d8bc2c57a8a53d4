package workspaces

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// guarded returns a workspace behind its guard, whose commands do what exec says.
func guarded(t *testing.T, exec func(ctx context.Context, command Command) (Result, error)) Workspace {
	t.Helper()
	m := newTestManager(t, &fakeProvider{onExec: exec}, Options{})
	return acquire(t, open(t, m, "r"), "")
}

func TestW1TheResultHoldsTheOutputAlsoWithAnError(t *testing.T) {
	boom := errors.New("boom")
	w := guarded(t, func(_ context.Context, c Command) (Result, error) {
		io.WriteString(c.Stdout, "so far")
		io.WriteString(c.Stderr, "\xff")
		return Result{ExitCode: 3, Stdout: "ignored"}, boom
	})
	result, err := w.Exec(t.Context(), Command{Args: []string{"x"}})
	require.ErrorIs(t, err, boom)
	var op *OpError
	require.ErrorAs(t, err, &op)
	require.Equal(t, "exec", op.Op)
	require.Equal(t, w.ID(), op.Workspace)
	require.Equal(t, "so far", result.Stdout)
	require.EqualValues(t, 6, result.StdoutBytes)
	require.Equal(t, "\uFFFD", result.Stderr)
	require.EqualValues(t, 1, result.StderrBytes)
	require.Equal(t, 3, result.ExitCode)
}

func TestW4EveryByteReachesTheSinks(t *testing.T) {
	w := guarded(t, func(_ context.Context, c Command) (Result, error) {
		chunk := bytes.Repeat([]byte("x"), 10_000)
		for i := range 50 {
			chunk[0] = byte(i)
			c.Stdout.Write(chunk)
		}
		return Result{}, nil
	})
	var sink bytes.Buffer
	result, err := w.Exec(t.Context(), Command{Args: []string{"x"}, Stdout: &sink})
	require.NoError(t, err)
	require.Equal(t, 500_000, sink.Len())
	for i := range 50 {
		require.Equal(t, byte(i), sink.Bytes()[i*10_000])
	}
	require.True(t, result.StdoutTruncated)
}

// A blockedSink blocks in its first write until it is let go.
type blockedSink struct {
	blocked, let chan struct{}
	writes       atomic.Int64
}

func (s *blockedSink) Write(p []byte) (int, error) {
	if s.writes.Add(1) == 1 {
		close(s.blocked)
	}
	<-s.let
	return len(p), nil
}

func TestW4ABlockedSinkHoldsUpNeitherTimeoutNorCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := guarded(t, func(ctx context.Context, c Command) (Result, error) {
			for range 3 {
				c.Stdout.Write([]byte("y\n"))
			}
			return Result{TimedOut: true, ExitCode: 124}, ctx.Err()
		})
		sink := &blockedSink{blocked: make(chan struct{}), let: make(chan struct{})}
		began := time.Now()
		result, err := w.Exec(t.Context(), Command{Args: []string{"x"}, Stdout: sink, Timeout: 2 * time.Second})
		require.NoError(t, err)
		require.True(t, result.TimedOut)
		require.Equal(t, 2*time.Second+sinkPatience, time.Since(began))
		require.Equal(t, "y\ny\ny\n", result.Stdout)

		cancelled := &blockedSink{blocked: make(chan struct{}), let: make(chan struct{})}
		ctx, cancel := context.WithCancel(t.Context())
		go func() { <-cancelled.blocked; cancel() }()
		began = time.Now()
		_, err = w.Exec(ctx, Command{Args: []string{"x"}, Stdout: cancelled})
		require.ErrorIs(t, err, context.Canceled)
		require.Less(t, time.Since(began), CancelReturn)
		close(sink.let)
		close(cancelled.let)
		synctest.Wait()
		require.EqualValues(t, 1, sink.writes.Load(), "a write started after Exec had returned")
	})
}

func TestW5TimeoutIsFilledInAndNeverPastTheExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got time.Duration
		w := guarded(t, func(_ context.Context, c Command) (Result, error) { got = c.Timeout; return Result{}, nil })
		exec := func(timeout time.Duration) error {
			_, err := w.Exec(t.Context(), Command{Args: []string{"x"}, Timeout: timeout})
			return err
		}
		require.NoError(t, exec(0))
		require.Equal(t, ExecTimeout, got)
		require.NoError(t, exec(time.Second))
		require.Equal(t, time.Second, got)
		require.ErrorIs(t, exec(-1), ErrInvalidInput)
		require.ErrorIs(t, exec(ExecTimeoutMax+1), ErrInvalidInput)
		time.Sleep(Lifetime - time.Minute)
		require.NoError(t, exec(0))
		require.LessOrEqual(t, got, time.Minute+time.Second)
	})
}

func TestW1InputIsValidatedBeforeTheProviderSeesIt(t *testing.T) {
	w := guarded(t, func(context.Context, Command) (Result, error) { panic("reached") })
	for name, c := range map[string]Command{
		"no argv":  {},
		"no name":  {Args: []string{""}},
		"NUL":      {Args: []string{"a", "b\x00c"}},
		"env name": {Args: []string{"a"}, Env: map[string]string{"A-B=": "x"}},
		"dir":      {Args: []string{"a"}, Dir: "../x"},
		"dir root": {Args: []string{"a"}, Dir: "/workspace-evil"},
	} {
		_, err := w.Exec(t.Context(), c)
		require.ErrorIs(t, err, ErrInvalidInput, name)
	}
	_, err := w.ReadFile(t.Context(), "/etc/passwd")
	require.ErrorIs(t, err, ErrInvalidInput)
	require.ErrorIs(t, w.WriteFile(t.Context(), "../x", nil), ErrInvalidInput)
	require.ErrorIs(t, w.WriteFile(t.Context(), "x", make([]byte, FileMaxBytes+1)), ErrTooLarge)
	_, err = w.ReadFile(t.Context(), "x")
	require.ErrorIs(t, err, fs.ErrNotExist)
}

func TestW16DisposeUnblocksCallsWithDisposed(t *testing.T) {
	running := make(chan struct{}, 1)
	w := guarded(t, func(ctx context.Context, _ Command) (Result, error) {
		running <- struct{}{}
		<-ctx.Done()
		return Result{}, ctx.Err()
	})
	result := make(chan error, 1)
	go func() {
		_, err := w.Exec(context.Background(), Command{Args: []string{"x"}})
		result <- err
	}()
	<-running
	var wait sync.WaitGroup
	for range 3 {
		wait.Go(func() { require.NoError(t, w.Dispose(t.Context())) })
	}
	wait.Wait()
	err := <-result
	require.ErrorIs(t, err, ErrDisposed)
	require.NotErrorIs(t, err, context.Canceled)
}

func TestW16DisposeOutlivesTheCallersCancel(t *testing.T) {
	let := make(chan struct{})
	var alive atomic.Bool
	p := &fakeProvider{onDispose: func(ctx context.Context) error {
		<-let
		alive.Store(ctx.Err() == nil)
		return nil
	}}
	m := newTestManager(t, p, Options{})
	w := acquire(t, open(t, m, "r"), "")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, w.Dispose(ctx), context.Canceled)
	close(let)
	require.NoError(t, w.Dispose(t.Context()))
	require.True(t, alive.Load())
	require.EqualValues(t, 1, p.disposes.Load())
}

func TestW5ACallersDeadlineIsAnError(t *testing.T) {
	w := guarded(t, func(ctx context.Context, _ Command) (Result, error) {
		<-ctx.Done()
		return Result{}, ctx.Err()
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	_, err := w.Exec(ctx, Command{Args: []string{"x"}})
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

// linkedProvider makes workspaces in which every path below link/ leads to real/.
type linkedWorkspace struct{ *fakeWorkspace }

func (w linkedWorkspace) resolve(path string) string {
	return strings.Replace(path, "link/", "real/", 1)
}

func (w linkedWorkspace) ReadFile(ctx context.Context, path string) ([]byte, error) {
	return w.fakeWorkspace.ReadFile(ctx, w.resolve(path))
}

func (w linkedWorkspace) WriteFileAt(ctx context.Context, path, at string, data []byte) error {
	if real := w.resolve(path); real != at {
		return &MovedError{At: real}
	}
	return w.WriteFile(ctx, at, data)
}

type linkedProvider struct{ *fakeProvider }

func (p linkedProvider) Create(ctx context.Context, options CreateOptions) (Created, error) {
	c, err := p.fakeProvider.Create(ctx, options)
	if err == nil {
		c.Workspace = linkedWorkspace{c.Workspace.(*fakeWorkspace)}
	}
	return c, err
}

func TestT6UpdatesOfOneFileAllApply(t *testing.T) {
	for name, provider := range map[string]Provider{"linker": linkedProvider{&fakeProvider{}}, "plain": &fakeProvider{}} {
		t.Run(name, func(t *testing.T) {
			m, err := NewManager(provider, Options{CollectInterval: -1})
			require.NoError(t, err)
			defer m.Close(context.Background())
			w := acquire(t, open(t, m, "r"), "")
			spellings := []string{"real/f", "./real/f", "/workspace/real/f"}
			if name == "linker" {
				spellings = append(spellings, "link/f", "real/../link/f")
			}
			require.NoError(t, w.WriteFile(t.Context(), "real/f", nil))
			var wait sync.WaitGroup
			for i := range 100 {
				wait.Go(func() {
					require.NoError(t, Update(t.Context(), w, spellings[i%len(spellings)], func(at string, old []byte) ([]byte, error) {
						return fmt.Appendf(old, "%d\n", i), nil
					}))
				})
			}
			wait.Wait()
			data, err := w.ReadFile(t.Context(), "real/f")
			require.NoError(t, err)
			require.Equal(t, 100, bytes.Count(data, []byte("\n")))
		})
	}
}

func TestT6DifferentFilesInParallel(t *testing.T) {
	m, err := NewManager(linkedProvider{&fakeProvider{}}, Options{CollectInterval: -1})
	require.NoError(t, err)
	defer m.Close(context.Background())
	w := acquire(t, open(t, m, "r"), "")
	require.NoError(t, w.WriteFile(t.Context(), "a", []byte("a")))
	require.NoError(t, Update(t.Context(), w, "a", func(_ string, old []byte) ([]byte, error) {
		return append(old, '!'), w.WriteFile(t.Context(), "b", []byte("b")) // would wait for ever on one lock
	}))
	refused := errors.New("refused")
	require.ErrorIs(t, Update(t.Context(), w, "link/a", func(at string, _ []byte) ([]byte, error) { return nil, refused }), fs.ErrNotExist)
	var at string
	require.NoError(t, w.WriteFile(t.Context(), "link/a", []byte("x")))
	require.NoError(t, Update(t.Context(), w, "link/a", func(where string, old []byte) ([]byte, error) { at = where; return append(old, 'y'), nil }))
	require.Equal(t, "real/a", at)
	require.NoError(t, Update(t.Context(), w, "a", func(_ string, old []byte) ([]byte, error) { return old, nil }))
	require.ErrorIs(t, Update(t.Context(), w, "a", func(string, []byte) ([]byte, error) { return nil, refused }), refused)
	require.ErrorIs(t, Update(t.Context(), &fakeWorkspace{}, "a", nil), ErrUnsupported)
}

type recordingObserver struct {
	mu             sync.Mutex
	started, ended []OperationKind
	outcomes       []OperationOutcome
}

type observedKey struct{}

func (o *recordingObserver) Start(ctx context.Context, op Operation) context.Context {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.started = append(o.started, op.Kind)
	return context.WithValue(ctx, observedKey{}, op.Kind)
}

func (o *recordingObserver) End(ctx context.Context, op Operation, outcome OperationOutcome) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if ctx.Value(observedKey{}) != op.Kind {
		panic("End without the context of its Start")
	}
	o.ended = append(o.ended, op.Kind)
	o.outcomes = append(o.outcomes, outcome)
}

func TestO1EveryStartHasOneEndOnEveryPath(t *testing.T) {
	observer := &recordingObserver{}
	p := &fakeProvider{onExec: func(ctx context.Context, c Command) (Result, error) {
		switch c.Args[0] {
		case "fail":
			return Result{}, errors.New("boom")
		case "panic":
			panic("oh")
		case "wait":
			<-ctx.Done()
			return Result{}, ctx.Err()
		}
		return Result{ExitCode: 1}, nil
	}}
	m := newTestManager(t, p, Options{Observer: observer})
	run := open(t, m, "r")
	w := acquire(t, run, "")
	for _, name := range []string{"ok", "fail", "panic", ""} {
		w.Exec(t.Context(), Command{Args: []string{name}})
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	w.Exec(ctx, Command{Args: []string{"wait"}})
	w.ReadFile(t.Context(), "absent")
	w.ReadFile(t.Context(), "../outside")
	w.WriteFile(t.Context(), "f", []byte("x"))
	Update(t.Context(), w, "f", func(string, []byte) ([]byte, error) { return []byte("y"), nil })
	m.Collect(t.Context())
	run.Release(t.Context(), Completed)
	w.Exec(t.Context(), Command{Args: []string{"late"}})
	p.onCreate = func(context.Context, CreateOptions) error { return errors.New("no") }
	open(t, m, "s").Acquire(t.Context(), AcquireOptions{})
	require.NoError(t, m.Close(t.Context()))

	observer.mu.Lock()
	defer observer.mu.Unlock()
	require.ElementsMatch(t, observer.started, observer.ended)
	for _, kind := range []OperationKind{OperationCreate, OperationCheckout, OperationExec, OperationRead, OperationWrite, OperationDispose, OperationCollect} {
		require.Contains(t, observer.started, kind)
	}
}

func TestAsLooksThroughWrappers(t *testing.T) {
	m := newTestManager(t, &fakeProvider{}, Options{})
	w := acquire(t, open(t, m, "r"), "")
	fake, ok := As[*fakeWorkspace](w)
	require.True(t, ok)
	require.Equal(t, w.ID(), fake.ID())
	_, ok = As[Prober](w)
	require.True(t, ok)
	_, ok = As[HostDir](w)
	require.False(t, ok)
	_, ok = As[Prober](nil)
	require.False(t, ok)
}

func TestErrorsMatchTheirSentinels(t *testing.T) {
	for _, sentinel := range []error{
		ErrInvalidInput, ErrInvalidConfig, ErrNotFound, ErrExpired, ErrGone, ErrDisposed, ErrClosed,
		ErrRunEnded, ErrLimitReached, ErrRefHeld, ErrTooLarge, ErrUnsupported, ErrUnavailable, ErrOutcomeUnknown,
	} {
		err := error(&OpError{Op: "exec", Workspace: "w", Err: fmt.Errorf("%w: why", sentinel)})
		require.ErrorIs(t, err, sentinel)
		require.ErrorContains(t, err, "exec in workspace w: ")
	}
}
