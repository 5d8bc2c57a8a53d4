package lifecycle

import (
	"context"
	"crypto/rand"
	"fmt"
	"sync"

	"github.com/cloudwego/eino/adk"

	"github.com/carrel-dev/carrel/workspaces"
)

// A name is what WithRunID puts into a context: the run's id, and what was started under it.
type name struct {
	id     string
	chosen bool // by the caller

	mu      sync.Mutex
	latest  *execution // the last that was started
	refused error      // why the last that was started got no run
	open    map[*execution]struct{}
	claimed bool // Events has found the latest
	mixed   bool // one was started while another was open that Events had not found
}

type nameKey struct{}

// WithRunID names the run of what is started with the context it returns: the hook opens that run, and settles it
// at its end. To hold a run over several calls, a chat session over its turns, use
// [workspaces.Manager.Open] and [workspaces.ContextWithRun] instead. Within a run, it starts another one.
//
// A run that is resumed goes on in its workspaces when it has the same id again. An id is 1 to 256 bytes of
// UTF-8 without control characters; with another one no run is opened, which [Events] and [OnError] report.
//
// An empty id has one made, for [Events] to find the run by. A resumed agent then keeps the id that its session
// remembers, and within a run nothing else is started.
func WithRunID(ctx context.Context, id string) context.Context {
	n := &name{id: id, chosen: id != "", open: make(map[*execution]struct{})}
	if n.chosen {
		ctx = workspaces.ContextWithRun(ctx, nil)
	} else {
		n.id = newRunID()
	}
	return context.WithValue(ctx, nameKey{}, n)
}

func newRunID() string { return "run-" + rand.Text() }

func nameOf(ctx context.Context) *name {
	n, _ := ctx.Value(nameKey{}).(*name)
	return n
}

func (n *name) add(e *execution) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.mixed = len(n.open) > 0 && (n.mixed || !n.claimed)
	n.latest, n.refused, n.claimed = e, nil, false
	n.open[e] = struct{}{}
}

func (n *name) remove(e *execution) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.open, e)
}

func (n *name) refuse(err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.latest, n.refused = nil, err
}

func (n *name) last() *execution {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.latest
}

// claim returns the execution that Events is called for. It is nil where that cannot be told.
func (n *name) claim() (*execution, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case n.refused != nil:
		return nil, n.refused
	case n.latest == nil:
		return nil, fmt.Errorf("%w: lifecycle.Events got a context that no lifecycle hook has seen a run start with", workspaces.ErrInvalidInput)
	case n.mixed:
		return nil, nil
	}
	n.claimed = true
	return n.latest, nil
}

// SessionKey is the value of an agent's session that remembers the run's id where no caller chose one: for
// an agent that it transfers to, and for a resume.
const SessionKey = "carrel.run"

func sessionRunID(ctx context.Context) string {
	value, _ := adk.GetSessionValue(ctx, SessionKey)
	id, _ := value.(string)
	return id
}
