package workspaces

import (
	"context"
	"sync"
)

// A gate lets calls in until it is closed, which cancels those that are inside. The zero
// value is open.
type gate struct {
	mu     sync.Mutex
	reason error // why it is closed
	inside map[*context.CancelCauseFunc]struct{}
	empty  chan struct{} // closed when the last call leaves a closed gate; nil while nobody waits
}

// enter returns a context that ends when the gate closes, with the reason as its
// cause. The caller calls leave.
func (g *gate) enter(ctx context.Context) (inside context.Context, leave func(), err error) {
	inside, cancel := context.WithCancelCause(ctx)
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.reason != nil {
		cancel(g.reason)
		return nil, nil, g.reason
	}
	if g.inside == nil {
		g.inside = make(map[*context.CancelCauseFunc]struct{})
	}
	g.inside[&cancel] = struct{}{}
	return inside, func() {
		cancel(nil)
		g.mu.Lock()
		defer g.mu.Unlock()
		delete(g.inside, &cancel)
		if len(g.inside) == 0 && g.empty != nil {
			close(g.empty)
			g.empty = nil
		}
	}, nil
}

// close closes the gate. The first reason counts.
func (g *gate) close(reason error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.reason == nil {
		g.reason = reason
	}
	for cancel := range g.inside {
		(*cancel)(g.reason)
	}
}

// closed returns why the gate is closed, or nil.
func (g *gate) closed() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.reason
}

// left returns a channel that is closed once nobody is inside the closed gate.
func (g *gate) left() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.inside) == 0 {
		done := make(chan struct{})
		close(done)
		return done
	}
	if g.empty == nil {
		g.empty = make(chan struct{})
	}
	return g.empty
}
