package remote

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/carrel-dev/carrel/workspaces"
)

const (
	stopPoll  = 100 * time.Millisecond
	killPoll  = 20 * time.Millisecond
	stopRetry = 200 * time.Millisecond
)

// stop ends, in the background, what is left of a command: TERM now and KILL once the grace is over. It belongs to the
// workspace, which waits for it, and takes at most StopTime. done is closed at its end.
func (w *Workspace) stop(j *job, grace time.Duration) (done chan struct{}) {
	done = make(chan struct{})
	since, until := atomic.LoadInt64(&j.since), int64(0)
	if since == 0 || w.work.join() != nil { // it never reached a session, or all ends
		w.forget(j)
		close(done)
		return done
	}
	kill := time.Now().Add(grace)
	if w.alone(j) {
		until = w.clock.ticks()
	}
	go func() {
		defer w.work.leave()
		defer close(done)
		defer w.forget(j)
		ctx, cancel := context.WithTimeout(w.life, workspaces.StopTime)
		defer cancel()
		for w.stopIn(ctx, j, since, until, kill) != nil && sleep(ctx, stopRetry) {
		}
	}()
	return done
}

// stopIn stops a command by way of one session. No other ran from since to until, if any time at all.
func (w *Workspace) stopIn(ctx context.Context, j *job, since, until int64, kill time.Time) error {
	s, _, err := w.pool.take(ctx)
	if err != nil {
		return err
	}
	defer s.close()
	answers := newLines()
	defer s.out.detach()
	rounds, ask := io.Pipe()
	defer ask.Close()
	over := make(chan struct{})
	defer close(over)
	go func() { // nobody may be there to read what is asked
		select {
		case <-s.ended:
		case <-ctx.Done():
		case <-over:
		}
		rounds.Close()
	}()
	s.send(randomHex(16), fmt.Sprintf("_c_id=%s\nstop %d\n", j.id, since), func(to io.Writer) { _, _ = io.Copy(to, rounds) }, answers, io.Discard)

	signal := "TERM"
	for {
		if !time.Now().Before(kill) {
			signal = "KILL"
		}
		last := until
		if last > 0 && w.alone(j) { // nor has one begun since
			last = math.MaxInt64
		}
		if _, err := fmt.Fprintf(ask, "%s %d\n", signal, last); err != nil {
			return err
		}
		var answer string
		select {
		case answer = <-answers.all:
		case <-s.ended:
			return errLost
		case <-ctx.Done():
			return ctx.Err()
		}
		left, err := strconv.Atoi(answer)
		switch {
		case err != nil:
			return fmt.Errorf("the sandbox's shell answers %.100q", answer)
		case left == 0:
			return nil
		}
		pause := killPoll
		if signal != "KILL" {
			signal, pause = "0", min(stopPoll, max(time.Until(kill), 0))
		}
		if !sleep(ctx, pause) {
			return ctx.Err()
		}
	}
}

func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// lines is a sink whose lines somebody waits for.
type lines struct {
	all  chan string
	rest []byte
}

func newLines() *lines { return &lines{all: make(chan string, 16)} }

func (l *lines) Write(p []byte) (int, error) {
	l.rest = append(l.rest, p...)
	for {
		line, rest, whole := bytes.Cut(l.rest, []byte("\n"))
		if !whole {
			return len(p), nil
		}
		select {
		case l.all <- strings.TrimSpace(string(line)):
		default: // nobody asked
		}
		l.rest = rest
	}
}
