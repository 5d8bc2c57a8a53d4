package remote

import (
	"sync"
	"time"
)

const ticksPerSecond = 100

// epoch is any moment: a clock counts from it, by our own monotonic clock.
var epoch = time.Now()

// A clock tells the uptime of the sandbox's kernel once a session has opened. What it says is the truth or earlier: by
// as long as the quickest answer has taken.
type clock struct {
	mu    sync.Mutex
	known bool
	ahead float64 // of ours, in seconds
}

// observe takes an uptime that the sandbox has just said.
func (c *clock) observe(uptime float64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if ahead := uptime - time.Since(epoch).Seconds(); !c.known || ahead > c.ahead {
		c.known, c.ahead = true, ahead
	}
}

// now is the uptime in seconds.
func (c *clock) now() float64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ahead + time.Since(epoch).Seconds()
}

// ticks is the uptime as the start of a process has it.
func (c *clock) ticks() int64 { return int64(c.now() * ticksPerSecond) }
