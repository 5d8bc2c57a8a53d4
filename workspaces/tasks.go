package workspaces

import (
	"context"
	"maps"
	"slices"
	"sync"
)

// tasks is the work that goes on in the background and that Close waits for. The
// zero value is ready.
type tasks struct {
	mu   sync.Mutex
	open map[*string]string
	idle chan struct{} // closed when nothing is open; nil while nobody waits
}

// begin notes that work has begun; the caller calls end.
func (t *tasks) begin(what string) (end func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.open == nil {
		t.open = make(map[*string]string)
	}
	key := &what
	t.open[key] = what
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		delete(t.open, key)
		if len(t.open) == 0 && t.idle != nil {
			close(t.idle)
			t.idle = nil
		}
	}
}

// wait waits until nothing is open or ctx ends, and returns what is still open.
func (t *tasks) wait(ctx context.Context) []string {
	t.mu.Lock()
	if len(t.open) == 0 {
		t.mu.Unlock()
		return nil
	}
	if t.idle == nil {
		t.idle = make(chan struct{})
	}
	idle := t.idle
	t.mu.Unlock()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		t.mu.Lock()
		defer t.mu.Unlock()
		return slices.Sorted(maps.Values(t.open))
	}
}
