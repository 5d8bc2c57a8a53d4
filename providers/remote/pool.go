package remote

import (
	"context"
	"sync"
	"time"
)

const (
	// IdleSessionsMax is how many sessions of all workspaces of this process wait for a call.
	IdleSessionsMax = 256

	// IdleTimeout is how long sessions wait for a call. The next one then opens its own.
	IdleTimeout = 5 * time.Minute

	// spares is how many sessions of a workspace wait for a call: one for the next command, one for its stop, which must
	// not need a new process, and one that makes up for the time the next takes to open when calls come back to back.
	spares = 3

	// spareWait is how long a command waits until there is a session for its stop.
	spareWait = time.Second
)

// idleSlots counts the sessions that wait.
var idleSlots = make(chan struct{}, IdleSessionsMax)

// A pool is the sessions of a workspace that wait for a call.
type pool struct {
	open func(ctx context.Context) (*session, error)

	mu      sync.Mutex
	closed  bool
	idle    []*session
	opening int
	settled chan struct{} // closed when an opening has ended
	timer   *time.Timer   // closes what is idle
}

// take returns a session, opened now where none waits, and has others take its place. warm: it had
// waited.
func (p *pool) take(ctx context.Context) (s *session, warm bool, err error) {
	p.mu.Lock()
	for s == nil && len(p.idle) > 0 {
		s = p.pop()
	}
	p.mu.Unlock()
	if s == nil {
		s, err = p.open(ctx)
	} else {
		warm = true
	}
	p.refill()
	return s, warm, err
}

// pop takes the newest; nil where that has died.
func (p *pool) pop() *session {
	last := len(p.idle) - 1
	s := p.idle[last]
	p.idle = p.idle[:last]
	<-idleSlots
	if s.isDead() {
		return nil
	}
	return s
}

// refill opens what is missing, in the background.
func (p *pool) refill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return
	}
	if p.timer == nil {
		p.timer = time.AfterFunc(IdleTimeout, p.drain)
	} else {
		p.timer.Reset(IdleTimeout)
	}
	for len(p.idle)+p.opening < spares {
		select {
		case idleSlots <- struct{}{}:
		default:
			return
		}
		p.opening++
		if p.settled == nil {
			p.settled = make(chan struct{})
		}
		go p.openOne()
	}
}

func (p *pool) openOne() {
	s, err := p.open(context.Background()) // which ends with the workspace
	p.mu.Lock()
	defer p.mu.Unlock()
	p.opening--
	close(p.settled)
	p.settled = nil
	if p.opening > 0 {
		p.settled = make(chan struct{})
	}
	switch {
	case err != nil:
		<-idleSlots
	case p.closed:
		<-idleSlots
		s.close()
	default:
		p.idle = append(p.idle, s)
	}
}

// awaitSpare waits until a session waits, or none can be had.
func (p *pool) awaitSpare(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, spareWait)
	defer cancel()
	for {
		p.mu.Lock()
		enough, settled := len(p.idle) > 0, p.settled
		p.mu.Unlock()
		if enough || settled == nil {
			return
		}
		select {
		case <-settled:
		case <-ctx.Done():
			return
		}
	}
}

// drain closes what is idle.
func (p *pool) drain() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.idle {
		<-idleSlots
		s.close()
	}
	p.idle = nil
}

// close closes what is idle and what comes.
func (p *pool) close() {
	p.mu.Lock()
	p.closed = true
	if p.timer != nil {
		p.timer.Stop()
	}
	p.mu.Unlock()
	p.drain()
}
