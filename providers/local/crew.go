//go:build linux || darwin

package local

import (
	"sync"
	"time"
)

// A crew counts who is at work. Unlike a sync.WaitGroup it can be waited for with a bound, and
// joined while somebody waits. The zero value is ready.
type crew struct {
	mu   sync.Mutex
	n    int
	idle chan struct{} // closed when nobody is at work; nil while nobody waits
}

func (c *crew) join() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n++
}

func (c *crew) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n--
	if c.n == 0 && c.idle != nil {
		close(c.idle)
		c.idle = nil
	}
}

// wait says whether the crew was idle once within that time.
func (c *crew) wait(within time.Duration) bool {
	c.mu.Lock()
	if c.n == 0 {
		c.mu.Unlock()
		return true
	}
	if c.idle == nil {
		c.idle = make(chan struct{})
	}
	idle := c.idle
	c.mu.Unlock()
	timer := time.NewTimer(within)
	defer timer.Stop()
	select {
	case <-idle:
		return true
	case <-timer.C:
		return false
	}
}
