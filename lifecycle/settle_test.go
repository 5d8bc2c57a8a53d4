package lifecycle_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/carrel-dev/carrel/workspaces"
)

// A run that completes has its workspace while it runs and none after it; nested components share it.
func TestCompleted_L1_L3(t *testing.T) {
	each(t, func(t *testing.T, m mode) {
		p := newPlace(t)
		live := 0
		s := m.make(t, func(ctx context.Context) (string, error) {
			_, err := acquire(ctx)
			live = p.manager.Live()
			return "ok", err
		})
		_, err := m.run(m.context(), s, p.hook)
		require.NoError(t, err)
		require.Equal(t, 1, live)
		p.requireSettled(t, m.background(), workspaces.Completed)
	})
}

// A tool or node that returns an error or panics ends the run, and releases it.
func TestFailed_L3_L6(t *testing.T) {
	for how, fail := range map[string]func() error{
		"error": func() error { return errors.New("the act failed") },
		"panic": func() error { panic("the act failed") },
	} {
		t.Run(how, func(t *testing.T) {
			each(t, func(t *testing.T, m mode) {
				p := newPlace(t)
				live := 0
				s := m.make(t, func(ctx context.Context) (string, error) {
					if _, err := acquire(ctx); err != nil {
						return "", err
					}
					live = p.manager.Live()
					return "", fail()
				})
				_, err := m.run(m.context(), s, p.hook)
				require.ErrorContains(t, err, "the act failed")
				require.Equal(t, 1, live)
				p.requireSettled(t, m.isAgent && !m.events, workspaces.Failed)
			})
		})
	}
}

// The end of the caller's context releases.
func TestContextCancelled_L4(t *testing.T) {
	each(t, func(t *testing.T, m mode) {
		p := newPlace(t)
		ctx, cancel := context.WithCancel(m.context())
		defer cancel()
		running := make(chan struct{})
		s := m.make(t, func(ctx context.Context) (string, error) { return "", occupy(ctx, running) })
		go func() {
			<-running
			cancel()
		}()
		_, err := m.run(ctx, s, p.hook)
		require.ErrorIs(t, err, context.Canceled)
		p.requireSettled(t, m.isAgent && !m.events, workspaces.Cancelled)
		_, _, stopped := p.provider.counts()
		require.Equal(t, 1, stopped)
	})
}
