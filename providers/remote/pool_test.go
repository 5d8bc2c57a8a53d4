package remote

import (
	"context"
	"io"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/carrel-dev/carrel/workspaces"
)

// A waiting transport opens sessions that get ready and then only wait.
type waiting struct {
	deaf bool // its sessions die of the first they hear

	mu     sync.Mutex
	opened int
	live   map[int]context.CancelFunc
}

func (w *waiting) Exec(ctx context.Context, _ []string, streams Streams) (int, error) {
	ctx, kill := context.WithCancel(ctx)
	defer kill()
	w.mu.Lock()
	w.opened++
	id := w.opened
	if w.live == nil {
		w.live = make(map[int]context.CancelFunc)
	}
	w.live[id] = kill
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.live, id)
	}()
	if _, err := io.WriteString(streams.Stderr, "\001ready 1.5\n"); err != nil {
		return 0, err
	}
	if w.deaf {
		_, err := streams.Stdin.Read(make([]byte, 1))
		return 0, err
	}
	<-ctx.Done()
	return 0, ctx.Err()
}

func (w *waiting) Alive(context.Context) error  { return nil }
func (w *waiting) Remove(context.Context) error { return nil }

func (w *waiting) count() (opened, live int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.opened, len(w.live)
}

// S2: sessions that nobody uses are closed after IdleTimeout, counted from the last call, and come back with the next.
func TestIdleSessionsEnd_S2(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		transport := new(waiting)
		w := New(transport, Options{ID: "ws"})
		defer w.Close()
		w.Warm()
		synctest.Wait()
		requireLive(t, transport, spares)

		time.Sleep(IdleTimeout - time.Second)
		s, warm, err := w.pool.take(t.Context())
		require.NoError(t, err)
		require.True(t, warm)
		s.close()
		time.Sleep(IdleTimeout - time.Second)
		requireLive(t, transport, spares)
		time.Sleep(2 * time.Second)
		requireLive(t, transport, 0)

		s, warm, err = w.pool.take(t.Context())
		require.NoError(t, err)
		require.False(t, warm)
		s.close()
		synctest.Wait()
		requireLive(t, transport, spares)
	})
}

func requireLive(t *testing.T, transport *waiting, want int) {
	t.Helper()
	synctest.Wait()
	_, live := transport.count()
	require.Equal(t, want, live)
}

// S2: a session that died while it waited is replaced, and no error.
func TestDeadSessionIsReplaced_S2(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		transport := new(waiting)
		w := New(transport, Options{ID: "ws"})
		defer w.Close()
		w.Warm()
		synctest.Wait()
		transport.mu.Lock()
		for _, kill := range transport.live {
			kill()
		}
		transport.mu.Unlock()
		synctest.Wait()
		s, _, err := w.pool.take(t.Context())
		require.NoError(t, err)
		require.False(t, s.isDead())
		s.close()
		requireLive(t, transport, spares)
	})
}

// S2: all workspaces of a process together have IdleSessionsMax that wait; one without any still works.
func TestIdleSessionsAreCapped_S2(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		transport := new(waiting)
		for range IdleSessionsMax {
			w := New(transport, Options{ID: "ws"})
			defer w.Close()
			w.Warm()
		}
		requireLive(t, transport, IdleSessionsMax)

		w := New(transport, Options{ID: "late"})
		w.Warm()
		requireLive(t, transport, IdleSessionsMax)
		s, warm, err := w.pool.take(t.Context())
		require.NoError(t, err)
		require.False(t, warm)
		s.close()
		w.Close()
		requireLive(t, transport, IdleSessionsMax)
	})
	require.Empty(t, idleSlots)
}

// W9: a stop whose sessions die on it tries others, and ends in time.
func TestStopEnds_W9(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := New(&waiting{deaf: true}, Options{ID: "ws"})
		defer w.Close()
		began := time.Now()
		j := w.begin()
		j.since = 1
		<-w.stop(j, 0)
		require.LessOrEqual(t, time.Since(began), workspaces.StopTime)
	})
}
