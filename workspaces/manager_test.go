package workspaces

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestM1OneWorkspacePerRunAndRepository(t *testing.T) {
	p := &fakeProvider{}
	m := newTestManager(t, p, Options{})
	run := open(t, m, "r")
	var wait sync.WaitGroup
	ids := make(chan string, 20)
	for range 20 {
		wait.Go(func() {
			got, err := run.Acquire(t.Context(), AcquireOptions{})
			require.NoError(t, err)
			ids <- got.Workspace.ID()
		})
	}
	wait.Wait()
	close(ids)
	for id := range ids {
		require.Equal(t, "ws-1", id)
	}
	require.EqualValues(t, 1, p.creates.Load())

	again, err := run.Acquire(t.Context(), AcquireOptions{})
	require.NoError(t, err)
	require.True(t, again.Reused)
	require.NotEqual(t, "ws-1", acquire(t, open(t, m, "another"), "").ID())
}

func TestM1SpellingsOfOneRepositoryShareAWorkspace(t *testing.T) {
	m := newTestManager(t, &fakeProvider{}, Options{})
	run := open(t, m, "r")
	first := acquire(t, run, "acme/app")
	for _, spelling := range []string{"https://github.com/acme/app", "https://GitHub.com/acme/app.git", "https://github.com/acme/app/"} {
		require.Equal(t, first.ID(), acquire(t, run, spelling).ID(), spelling)
	}
	require.NotEqual(t, first.ID(), acquire(t, run, "acme/other").ID())
}

func TestM1AnotherRefOrImageIsAnErrorThatNamesTheHeldOne(t *testing.T) {
	m := newTestManager(t, &fakeProvider{}, Options{AllowImage: func(context.Context, string, string) error { return nil }})
	run := open(t, m, "r")
	_, err := run.Acquire(t.Context(), AcquireOptions{Repository: "acme/app", Ref: "main", Image: "a:1"})
	require.NoError(t, err)
	_, err = run.Acquire(t.Context(), AcquireOptions{Repository: "acme/app", Ref: "dev"})
	require.ErrorIs(t, err, ErrRefHeld)
	require.ErrorContains(t, err, `"main"`)
	_, err = run.Acquire(t.Context(), AcquireOptions{Repository: "acme/app", Image: "b:1"})
	require.ErrorIs(t, err, ErrRefHeld)
	require.ErrorContains(t, err, `"a:1"`)
	for _, same := range []AcquireOptions{{Repository: "acme/app"}, {Repository: "acme/app", Ref: "main"}, {Repository: "acme/app", Image: "a:1"}} {
		got, err := run.Acquire(t.Context(), same)
		require.NoError(t, err)
		require.True(t, got.Reused)
	}
}

func TestM1TheLastWaiterToLeaveCancelsTheCreate(t *testing.T) {
	entered, cancelled := make(chan struct{}, 1), make(chan struct{})
	p := &fakeProvider{onCreate: func(ctx context.Context, _ CreateOptions) error {
		entered <- struct{}{}
		<-ctx.Done()
		close(cancelled)
		return ctx.Err()
	}}
	m := newTestManager(t, p, Options{})
	run := open(t, m, "r")
	first, leaveFirst := context.WithCancel(t.Context())
	second, leaveSecond := context.WithCancel(t.Context())
	results := make(chan error, 2)
	for _, ctx := range []context.Context{first, second} {
		go func() {
			_, err := run.Acquire(ctx, AcquireOptions{})
			results <- err
		}()
	}
	<-entered
	waitUntil(t, func() bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		return run.state.held[""].waiters == 2
	})
	leaveFirst()
	require.ErrorIs(t, <-results, context.Canceled)
	select {
	case <-cancelled:
		t.Fatal("cancelled although somebody waits")
	default:
	}
	leaveSecond()
	require.ErrorIs(t, <-results, context.Canceled)
	<-cancelled

	// A second create for the same key works.
	p.onCreate = nil
	require.NotNil(t, acquire(t, run, ""))
}

func TestM1AFailedCreateIsNotRemembered(t *testing.T) {
	boom := errors.New("boom")
	p := &fakeProvider{onCreate: func(context.Context, CreateOptions) error { return boom }}
	m := newTestManager(t, p, Options{})
	run := open(t, m, "r")
	_, err := run.Acquire(t.Context(), AcquireOptions{})
	require.ErrorIs(t, err, boom)
	p.onCreate = nil
	acquire(t, run, "")
	require.EqualValues(t, 2, p.creates.Load())
}

func TestM2Limits(t *testing.T) {
	m := newTestManager(t, &fakeProvider{}, Options{MaxTotal: 4})
	run := open(t, m, "r")
	for _, repository := range []string{"", "a/a", "a/b"} {
		acquire(t, run, repository)
	}
	_, err := run.Acquire(t.Context(), AcquireOptions{Repository: "a/c"})
	require.ErrorIs(t, err, ErrLimitReached)
	require.ErrorContains(t, err, "ws-1, ws-2, ws-3")

	other := open(t, m, "other")
	acquire(t, other, "")
	_, err = other.Acquire(t.Context(), AcquireOptions{Repository: "a/c"})
	require.ErrorIs(t, err, ErrLimitReached)

	require.NoError(t, run.Dispose(t.Context(), "ws-1"))
	acquire(t, other, "a/c")
}

func TestM3AllowRepoAndAllowImage(t *testing.T) {
	var asked string
	p := &fakeProvider{}
	m := newTestManager(t, p, Options{
		AllowRepo: func(_ context.Context, run, url string) error {
			asked = run + " " + url
			if strings.Contains(url, "evil") {
				return errors.New("only acme's repositories")
			}
			return nil
		},
		AllowImage: func(_ context.Context, _, image string) error {
			if image != "good:1" {
				return errors.New("use good:1")
			}
			return nil
		},
	})
	run := open(t, m, "r")
	_, err := run.Acquire(t.Context(), AcquireOptions{Repository: "evil/x"})
	require.ErrorIs(t, err, ErrInvalidInput)
	require.ErrorContains(t, err, "only acme's repositories")
	require.Equal(t, "r https://github.com/evil/x", asked)
	_, err = run.Acquire(t.Context(), AcquireOptions{Image: "bad:1"})
	require.ErrorIs(t, err, ErrInvalidInput)
	require.ErrorContains(t, err, "use good:1")
	require.Zero(t, p.creates.Load())
	_, err = run.Acquire(t.Context(), AcquireOptions{Image: "good:1"})
	require.NoError(t, err)

	without := newTestManager(t, &fakeProvider{}, Options{})
	_, err = open(t, without, "r").Acquire(t.Context(), AcquireOptions{Image: "good:1"})
	require.ErrorIs(t, err, ErrInvalidInput)
	require.False(t, without.AllowsImages())
	require.True(t, m.AllowsImages())
}

func TestM4Expiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &fakeProvider{}
		m := newTestManager(t, p, Options{})
		run := open(t, m, "r")
		w := acquire(t, run, "")
		time.Sleep(Lifetime)
		_, err := w.Exec(t.Context(), Command{Args: []string{"true"}})
		require.ErrorIs(t, err, ErrExpired)
		synctest.Wait()
		require.Empty(t, p.left(), "an expired workspace is disposed by the use that finds it")
		_, err = run.Get(t.Context(), w.ID())
		require.ErrorIs(t, err, ErrExpired)
		_, err = run.Get(t.Context(), "")
		require.ErrorIs(t, err, ErrExpired)

		got, err := run.Acquire(t.Context(), AcquireOptions{})
		require.NoError(t, err)
		require.False(t, got.Reused)
		require.NoError(t, run.Release(t.Context(), Completed))
	})
}

// What ends by itself at its expiry, in the middle of a command, has expired.
func TestM4GoneAtExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &fakeProvider{onExec: func(context.Context, Command) (Result, error) {
			time.Sleep(Lifetime)
			return Result{}, fmt.Errorf("%w: ended", ErrGone)
		}}
		w := acquire(t, open(t, newTestManager(t, p, Options{}), "r"), "")
		_, err := w.Exec(t.Context(), Command{Args: []string{"true"}})
		require.ErrorIs(t, err, ErrExpired)
		require.NotErrorIs(t, err, ErrGone)
	})
}

func TestM4GoneIsDisposedAndCreatedAnew(t *testing.T) {
	p := &fakeProvider{
		onExec:  func(context.Context, Command) (Result, error) { return Result{}, errors.New("stream broke") },
		onProbe: func(context.Context) error { return fmt.Errorf("%w: out of memory", ErrGone) },
	}
	m := newTestManager(t, p, Options{})
	run := open(t, m, "r")
	w := acquire(t, run, "")
	_, err := w.Exec(t.Context(), Command{Args: []string{"x"}})
	require.ErrorIs(t, err, ErrGone)
	require.ErrorContains(t, err, "out of memory")
	require.ErrorContains(t, err, "stream broke")
	_, err = run.Get(t.Context(), "")
	require.ErrorIs(t, err, ErrGone)
	next := acquire(t, run, "")
	require.NotEqual(t, w.ID(), next.ID())
	_, err = w.ReadFile(t.Context(), "f")
	require.ErrorIs(t, err, ErrGone)
}

func TestW17UnreachableIsNotGone(t *testing.T) {
	p := &fakeProvider{
		onExec: func(context.Context, Command) (Result, error) {
			return Result{}, fmt.Errorf("%w: refused", ErrUnavailable)
		},
		onProbe: func(context.Context) error { return ErrUnavailable },
	}
	m := newTestManager(t, p, Options{})
	run := open(t, m, "r")
	w := acquire(t, run, "")
	_, err := w.Exec(t.Context(), Command{Args: []string{"x"}})
	require.ErrorIs(t, err, ErrUnavailable)
	require.NotErrorIs(t, err, ErrGone)
	_, err = run.Get(t.Context(), w.ID())
	require.NoError(t, err)
}

func TestM5ARunThatEndedTakesNoCalls(t *testing.T) {
	p := &fakeProvider{}
	m := newTestManager(t, p, Options{})
	run := open(t, m, "r")
	w := acquire(t, run, "")
	require.NoError(t, run.Release(t.Context(), Failed))
	require.Empty(t, p.left())
	_, err := run.Acquire(t.Context(), AcquireOptions{})
	require.ErrorIs(t, err, ErrRunEnded)
	_, err = run.Get(t.Context(), "")
	require.ErrorIs(t, err, ErrRunEnded)
	_, err = w.ReadFile(t.Context(), "f")
	require.Error(t, err)
	require.EqualValues(t, 1, p.creates.Load(), "a straggler creates nothing")

	again := open(t, m, "r")
	acquire(t, again, "")
	require.EqualValues(t, 2, p.creates.Load())
}

func TestM5ReleaseAbortsCreatesInFlightAndWaits(t *testing.T) {
	entered := make(chan struct{})
	var cleaned atomic.Bool
	p := &fakeProvider{onCreated: func(ctx context.Context) error {
		close(entered)
		<-ctx.Done()
		time.Sleep(20 * time.Millisecond) // a clean-up that takes its time
		cleaned.Store(true)
		return ctx.Err()
	}}
	m := newTestManager(t, p, Options{})
	run := open(t, m, "r")
	result := make(chan error, 1)
	go func() {
		_, err := run.Acquire(context.Background(), AcquireOptions{})
		result <- err
	}()
	<-entered
	require.NoError(t, run.Release(t.Context(), Cancelled))
	require.True(t, cleaned.Load(), "release returned before the aborted create had cleaned up")
	require.ErrorIs(t, <-result, ErrRunEnded)
	require.Empty(t, p.left())
}

func TestM5HandlesOfOneRunShareAndTheLastSettles(t *testing.T) {
	p := &fakeProvider{}
	m := newTestManager(t, p, Options{})
	one, two := open(t, m, "r"), open(t, m, "r")
	w := acquire(t, one, "")
	require.Equal(t, w.ID(), acquire(t, two, "").ID())
	require.NoError(t, one.Release(t.Context(), Completed))
	require.Len(t, p.left(), 1)
	_, err := w.ReadFile(t.Context(), "f")
	require.ErrorIs(t, err, ErrRunEnded)
	same, err := two.Get(t.Context(), w.ID())
	require.NoError(t, err)
	_, err = same.ReadFile(t.Context(), "f")
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.NoError(t, two.Release(t.Context(), Completed))
	require.NoError(t, two.Release(t.Context(), Completed))
	require.Empty(t, p.left())
}

func TestL3InterruptedKeepsWorkspacesAndStopsCommands(t *testing.T) {
	running := make(chan struct{})
	p := &fakeProvider{onExec: func(ctx context.Context, _ Command) (Result, error) {
		close(running)
		<-ctx.Done()
		return Result{}, ctx.Err()
	}}
	m := newTestManager(t, p, Options{})
	run := open(t, m, "r")
	w := acquire(t, run, "")
	result := make(chan error, 1)
	go func() {
		_, err := w.Exec(context.Background(), Command{Args: []string{"sleep"}})
		result <- err
	}()
	<-running
	require.NoError(t, run.Release(t.Context(), Interrupted))
	require.ErrorIs(t, <-result, ErrRunEnded)
	require.Len(t, p.left(), 1)
	resumed := open(t, m, "r")
	got, err := resumed.Get(t.Context(), "")
	require.NoError(t, err)
	require.Equal(t, w.ID(), got.ID())
	require.NoError(t, resumed.Release(t.Context(), Completed))
	require.Empty(t, p.left())
}

func TestM5AnOpenAfterReleaseWaitsForWhatTheFirstLeaves(t *testing.T) {
	dispose := make(chan struct{})
	p := &fakeProvider{onDispose: func(context.Context) error { <-dispose; return nil }}
	m := newTestManager(t, p, Options{})
	run := open(t, m, "r")
	acquire(t, run, "")
	short, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, run.Release(short, Completed), context.Canceled)
	next := open(t, m, "r")
	created := make(chan Workspace)
	go func() {
		got, err := next.Acquire(context.Background(), AcquireOptions{})
		require.NoError(t, err)
		created <- got.Workspace
	}()
	select {
	case <-created:
		t.Fatal("created under a name that is still taken")
	case <-time.After(20 * time.Millisecond):
	}
	close(dispose)
	require.Equal(t, "ws-2", (<-created).ID())
}

func TestM6Close(t *testing.T) {
	entered := make(chan struct{})
	var creates atomic.Int64
	p := &fakeProvider{onCreate: func(ctx context.Context, _ CreateOptions) error {
		if creates.Add(1) == 2 {
			close(entered)
			<-ctx.Done()
			return ctx.Err()
		}
		return nil
	}}
	m := newTestManager(t, p, Options{})
	run := open(t, m, "r")
	w := acquire(t, run, "")
	result := make(chan error, 1)
	go func() {
		_, err := run.Acquire(context.Background(), AcquireOptions{Repository: "a/b"})
		result <- err
	}()
	<-entered
	require.NoError(t, m.Close(t.Context()))
	require.ErrorIs(t, <-result, ErrClosed)
	require.Empty(t, p.left())
	_, err := w.ReadFile(t.Context(), "f")
	require.Error(t, err)
	_, err = run.Acquire(t.Context(), AcquireOptions{})
	require.ErrorIs(t, err, ErrClosed)
	_, err = m.Open("r2")
	require.ErrorIs(t, err, ErrClosed)
	require.NoError(t, run.Release(t.Context(), Completed))
	require.NoError(t, m.Close(t.Context()))
}

func TestM6CloseReportsWhatIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		let := make(chan struct{})
		p := &fakeProvider{onDispose: func(context.Context) error { <-let; return nil }}
		m := newTestManager(t, p, Options{})
		run := open(t, m, "r")
		acquire(t, run, "")
		began := time.Now()
		err := m.Close(context.Background())
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "workspace ws-1")
		require.Equal(t, CloseTimeout, time.Since(began))
		close(let)
		require.NoError(t, run.Release(t.Context(), Completed))
	})
}

func TestW16AFailedDisposalIsTriedAgain(t *testing.T) {
	var calls atomic.Int64
	p := &fakeProvider{onDispose: func(context.Context) error {
		if calls.Add(1) == 1 {
			return errors.New("500")
		}
		return nil
	}}
	m := newTestManager(t, p, Options{})
	run := open(t, m, "r")
	w := acquire(t, run, "")
	require.ErrorContains(t, w.Dispose(t.Context()), "500")
	require.NoError(t, w.Dispose(t.Context()))
	require.NoError(t, w.Dispose(t.Context()))
	require.EqualValues(t, 2, calls.Load())
	_, err := w.Exec(t.Context(), Command{Args: []string{"true"}})
	require.ErrorIs(t, err, ErrDisposed)
	require.ErrorIs(t, run.Dispose(t.Context(), w.ID()), ErrNotFound)
}

func TestM7BeforeReleaseCanStillReadAndIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &fakeProvider{}
		var got []byte
		var failures []error
		m := newTestManager(t, p, Options{
			BeforeRelease: func(ctx context.Context, run string, outcome Outcome, all []Workspace) {
				got, _ = all[0].ReadFile(ctx, "f")
				require.Equal(t, "r", run)
				require.Equal(t, Failed, outcome)
				<-ctx.Done()
			},
			OnError: func(err error) { failures = append(failures, err) },
		})
		run := open(t, m, "r")
		require.NoError(t, acquire(t, run, "").WriteFile(t.Context(), "f", []byte("diff")))
		began := time.Now()
		require.NoError(t, run.Release(t.Context(), Failed))
		require.Equal(t, BeforeReleaseTimeout, time.Since(began))
		require.Equal(t, "diff", string(got))
		require.Empty(t, p.left())
	})
}

type collectingProvider struct {
	*fakeProvider
	collect func(ctx context.Context, options CollectOptions) (int, error)
}

func (p collectingProvider) Collect(ctx context.Context, options CollectOptions) (int, error) {
	return p.collect(ctx, options)
}

func TestM8Collect(t *testing.T) {
	p := &fakeProvider{}
	boom := errors.New("boom")
	var passes int
	now := time.Now()
	settled := map[string]Settlement{}
	m, err := NewManager(collectingProvider{p, func(ctx context.Context, options CollectOptions) (int, error) {
		passes++
		require.Equal(t, "d", options.Deployment)
		require.Equal(t, RunSettled, options.Settled(ctx, "old"))
		require.Equal(t, SettlementUnknown, options.Settled(ctx, "broken"))
		return 2, boom
	}}, Options{
		Deployment: "d", CollectInterval: -1,
		Now: func() time.Time { return now },
		IsSettled: func(_ context.Context, run string) (Settlement, error) {
			if run == "broken" {
				return RunSettled, boom
			}
			if run == "old" {
				return RunSettled, nil
			}
			return settled[run], nil
		},
	})
	require.NoError(t, err)
	defer m.Close(context.Background())
	acquire(t, open(t, m, "a"), "")
	acquire(t, open(t, m, "b"), "")
	acquire(t, open(t, m, "broken"), "")
	settled["a"] = RunSettled
	settled["b"] = RunLive
	n, err := m.Collect(t.Context())
	require.Equal(t, 3, n)
	require.ErrorIs(t, err, boom)
	require.Len(t, p.left(), 2)
	now = now.Add(Lifetime + time.Minute)
	n, err = m.Collect(t.Context())
	require.Equal(t, 4, n)
	require.ErrorIs(t, err, boom)
	require.Empty(t, p.left())
	require.Equal(t, 2, passes)
}

func TestM8AcquireStartsACollectionAtMostEveryInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var passes atomic.Int64
		m, err := NewManager(collectingProvider{&fakeProvider{}, func(context.Context, CollectOptions) (int, error) {
			passes.Add(1)
			return 0, nil
		}}, Options{})
		require.NoError(t, err)
		run := open(t, m, "r")
		for range 5 {
			acquire(t, run, "")
		}
		synctest.Wait()
		require.EqualValues(t, 1, passes.Load())
		time.Sleep(CollectInterval)
		acquire(t, run, "")
		synctest.Wait()
		require.EqualValues(t, 2, passes.Load())
		require.NoError(t, m.Close(t.Context()))
	})
}

func TestM9IsSettledNeedsADeployment(t *testing.T) {
	_, err := NewManager(&fakeProvider{}, Options{IsSettled: func(context.Context, string) (Settlement, error) { return RunSettled, nil }})
	require.ErrorIs(t, err, ErrInvalidConfig)
}

type findingProvider struct {
	*fakeProvider
	find func() ([]Workspace, error)
}

func (p findingProvider) Find(context.Context, string, string) ([]Workspace, error) { return p.find() }

func TestM10FindsWhatAnotherProcessLeft(t *testing.T) {
	p := &fakeProvider{}
	created, err := p.Create(t.Context(), CreateOptions{RunID: "r", Repository: "https://github.com/a/b", Ref: "main"})
	require.NoError(t, err)
	left := created.Workspace.(*fakeWorkspace)
	left.info.Commit = strings.Repeat("a", 40)
	var asked int
	fail := errors.New("daemon away")
	m, err := NewManager(findingProvider{p, func() ([]Workspace, error) {
		asked++
		if asked == 1 {
			return nil, fail
		}
		return []Workspace{left}, nil
	}}, Options{CollectInterval: -1})
	require.NoError(t, err)
	defer m.Close(context.Background())
	run := open(t, m, "r")
	_, err = run.Get(t.Context(), "")
	require.ErrorIs(t, err, fail)
	got, err := run.Get(t.Context(), "")
	require.NoError(t, err)
	require.Equal(t, left.id, got.ID())
	require.Equal(t, left.info.Commit, got.Info().Commit)
	again, err := run.Acquire(t.Context(), AcquireOptions{Repository: "a/b"})
	require.NoError(t, err)
	require.True(t, again.Reused)
	require.Equal(t, 2, asked, "asked again only after a failure")
}

func TestM10NamesAreTheSameInEveryProcess(t *testing.T) {
	name := func(deployment, run, repository string) string {
		var got CreateOptions
		p := &fakeProvider{onCreate: func(_ context.Context, options CreateOptions) error { got = options; return nil }}
		m := newTestManager(t, p, Options{Deployment: deployment})
		acquire(t, open(t, m, run), repository)
		require.Len(t, got.Name, 24)
		return got.Name
	}
	seen := map[string]bool{}
	for _, key := range [][3]string{{"d", "r", "a/b"}, {"d", "r", ""}, {"d", "s", "a/b"}, {"e", "r", "a/b"}} {
		first := name(key[0], key[1], key[2])
		require.Equal(t, first, name(key[0], key[1], key[2]))
		require.False(t, seen[first])
		seen[first] = true
	}
}

func TestM11CancelAtEveryStepLeavesNothing(t *testing.T) {
	steps := map[string]func(p *fakeProvider, cancel func()){
		"before create": func(_ *fakeProvider, cancel func()) { cancel() },
		"in create": func(p *fakeProvider, cancel func()) {
			p.onCreate = func(ctx context.Context, _ CreateOptions) error { cancel(); <-ctx.Done(); return ctx.Err() }
		},
		"after it exists": func(p *fakeProvider, cancel func()) {
			p.onCreated = func(ctx context.Context) error { cancel(); <-ctx.Done(); return ctx.Err() }
		},
		"a provider that does not notice": func(p *fakeProvider, cancel func()) {
			p.onCreated = func(ctx context.Context) error { cancel(); <-ctx.Done(); return nil }
		},
	}
	for name, step := range steps {
		t.Run(name, func(t *testing.T) {
			p := &fakeProvider{}
			m := newTestManager(t, p, Options{})
			run := open(t, m, "r")
			ctx, cancel := context.WithCancel(t.Context())
			step(p, cancel)
			_, err := run.Acquire(ctx, AcquireOptions{})
			require.ErrorIs(t, err, context.Canceled)
			require.Empty(t, m.tasks.wait(t.Context()))
			require.Empty(t, p.left())
			p.onCreate, p.onCreated = nil, nil
			acquire(t, run, "")
		})
	}
}

func TestM11CleanUpHasAContextOfItsOwn(t *testing.T) {
	var alive atomic.Bool
	p := &fakeProvider{}
	p.onDispose = func(ctx context.Context) error {
		_, bounded := ctx.Deadline()
		alive.Store(ctx.Err() == nil && bounded)
		return nil
	}
	ctx, cancel := context.WithCancel(t.Context())
	p.onCreated = func(ctx context.Context) error { cancel(); <-ctx.Done(); return nil }
	m := newTestManager(t, p, Options{})
	_, err := open(t, m, "r").Acquire(ctx, AcquireOptions{})
	require.ErrorIs(t, err, context.Canceled)
	waitUntil(t, func() bool { return p.disposes.Load() == 1 && len(p.left()) == 0 })
	require.True(t, alive.Load())
}

func TestM12CallsAreNeverRepeated(t *testing.T) {
	var calls atomic.Int64
	p := &fakeProvider{onExec: func(context.Context, Command) (Result, error) {
		calls.Add(1)
		return Result{}, errors.New("connection reset")
	}}
	m := newTestManager(t, p, Options{})
	w := acquire(t, open(t, m, "r"), "")
	for range 2 {
		_, err := w.Exec(t.Context(), Command{Args: []string{"npm", "test"}})
		require.Error(t, err)
	}
	require.EqualValues(t, 2, calls.Load())
}

func TestM13BackgroundFailuresGoToOnError(t *testing.T) {
	boom := errors.New("boom")
	failures := make(chan error, 10)
	p := &fakeProvider{
		onExec:    func(context.Context, Command) (Result, error) { return Result{}, ErrGone },
		onDispose: func(context.Context) error { return boom },
	}
	m := newTestManager(t, p, Options{OnError: func(err error) { failures <- err }})
	w := acquire(t, open(t, m, "r"), "")
	_, err := w.Exec(t.Context(), Command{Args: []string{"x"}})
	require.ErrorIs(t, err, ErrGone)
	require.ErrorIs(t, <-failures, boom)
	p.onDispose = nil
}

func TestR6ConstructorsValidateAndContactNothing(t *testing.T) {
	allow := func(context.Context, string, string) error { return nil }
	for name, options := range map[string]Options{
		"deployment":               {Deployment: "No Spaces"},
		"image":                    {Image: "-x"},
		"env":                      {Env: map[string]string{"A=B": "x"}},
		"limits":                   {Limits: Limits{Memory: "many"}},
		"max per run":              {MaxPerRun: -1},
		"max total":                {MaxTotal: -1},
		"host fetch without allow": {HostFetch: &HostFetch{}},
		"host fetch size":          {AllowRepo: allow, HostFetch: &HostFetch{MaxBytes: -1}},
	} {
		p := &fakeProvider{}
		_, err := NewManager(p, options)
		require.ErrorIs(t, err, ErrInvalidConfig, name)
		require.Zero(t, p.creates.Load())
	}
	_, err := NewManager(nil, Options{})
	require.ErrorIs(t, err, ErrInvalidConfig)
}

func TestT4APanicInAProviderIsAnError(t *testing.T) {
	p := &fakeProvider{onExec: func(context.Context, Command) (Result, error) { panic("oh") }}
	m := newTestManager(t, p, Options{})
	run := open(t, m, "r")
	w := acquire(t, run, "")
	_, err := w.Exec(t.Context(), Command{Args: []string{"x"}})
	require.ErrorContains(t, err, "panic in the provider: oh")
	p.onCreate = func(context.Context, CreateOptions) error { panic("again") }
	_, err = run.Acquire(t.Context(), AcquireOptions{Repository: "a/b"})
	require.ErrorContains(t, err, "panic in the provider: again")
}
