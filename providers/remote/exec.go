package remote

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/carrel-dev/carrel/workspaces"
)

const (
	exitTimeout = 124
	exitKilled  = 137

	// timeSlack is how much shorter than its timeout a command that timed out may seem to have run: the
	// sandbox's clock counts hundredths of a second.
	timeSlack = 0.05

	// argumentMax is the most bytes that Linux passes in one argument, its end included.
	argumentMax = 128 << 10

	goneTries = 20
)

// errGuard ends a call of which nothing is heard any more.
var errGuard = errors.New("nothing is heard of the sandbox")

// errLost: a session ended without a report.
var errLost = errors.New("the connection to the sandbox was lost")

func randomHex(bytes int) string {
	b := make([]byte, bytes)
	_, _ = rand.Read(b) // never fails
	return hex.EncodeToString(b)
}

// A job is a command that was started.
type job struct {
	id     string
	number int   // which of the workspace's
	since  int64 // no process of it is older: ticks of the sandbox's kernel
}

// Exec runs a command in the sandbox.
func (w *Workspace) Exec(ctx context.Context, c workspaces.Command) (workspaces.Result, error) {
	for i, arg := range c.Args {
		if len(arg) >= argumentMax {
			return workspaces.Result{}, fmt.Errorf("%w: argument %d of the command is longer than %d bytes", workspaces.ErrInvalidInput, i, argumentMax-1)
		}
	}
	ctx, leave, err := w.enter(ctx)
	if err != nil {
		return workspaces.Result{}, err
	}
	defer leave()
	j := w.begin()
	stopped := false
	defer func() {
		if !stopped {
			w.forget(j)
		}
	}()

	k := call{id: j.id, text: runText(c), out: c.Stdout, errs: c.Stderr, spare: true, patience: c.Timeout + workspaces.GuardTime}
	if c.Stdin != nil {
		k.stdin = func(to io.Writer) { chunks(to, c.Stdin) }
	}
	k.sent = func() { atomic.StoreInt64(&j.since, w.clock.ticks()-ticksPerSecond*timeSlack) }
	report, warm, err := w.call(ctx, k)
	result := workspaces.Result{Warm: warm}
	switch {
	case errors.Is(err, errGuard):
		stopped = true
		w.stop(j, 0)
		if gone := w.alive(ctx); errors.Is(gone, workspaces.ErrGone) {
			return result, gone
		}
		result.ExitCode, result.TimedOut = exitTimeout, true
		return result, nil
	case err != nil:
		if ctx.Err() != nil {
			stopped = true
			w.stop(j, workspaces.KillAfter)
		}
		return result, err
	}
	code, err := strconv.Atoi(report.word)
	if err != nil {
		return result, refusedCommand(report.word, c)
	}
	result.ExitCode, result.OOMKilled = code, report.oom
	over := report.elapsed() - c.Timeout.Seconds()
	if (code == exitTimeout || code == exitKilled) && over >= -timeSlack {
		result.ExitCode, result.TimedOut = exitTimeout, true
		stopped = true
		select { // the command has its grace, the caller may still leave
		case <-w.stop(j, workspaces.KillAfter-time.Duration(over*float64(time.Second))):
		case <-ctx.Done():
			return result, context.Cause(ctx)
		}
	}
	return result, nil
}

func refusedCommand(word string, c workspaces.Command) error {
	switch word {
	case "nodir":
		return fmt.Errorf("%w: %.200q is no directory of the workspace", workspaces.ErrInvalidInput, c.Dir)
	case "nofork":
		return fmt.Errorf("%w: the workspace runs as many processes as it may: wait until some have ended, or use a new workspace", workspaces.ErrLimitReached)
	}
	return fmt.Errorf("%w: the sandbox's shell reports %.100q", workspaces.ErrOutcomeUnknown, word)
}

// runText is a command as the session has it.
func runText(c workspaces.Command) string {
	var b strings.Builder
	argv := c.Args
	if len(c.Env) > 0 {
		prefix := []string{"env"}
		for name, value := range c.Env {
			prefix = append(prefix, name+"="+value)
		}
		if strings.Contains(argv[0], "=") { // env would take it for a variable
			prefix = append(prefix, "sh", "-c", `exec "$@"`, "sh")
		}
		argv = append(prefix, argv...)
		if path, ok := c.Env["PATH"]; ok {
			fmt.Fprintf(&b, "_c_path=%s\n", quote(path))
		}
	}
	feed := 0
	if c.Stdin != nil {
		feed = 1
	}
	fmt.Fprintf(&b, "run %s %s %d %s", strconv.FormatFloat(c.Timeout.Seconds(), 'f', 3, 64), quote(c.Dir), feed, quote(c.Args[0]))
	for _, arg := range argv {
		b.WriteString(" " + quote(arg))
	}
	b.WriteByte('\n')
	return b.String()
}

func (w *Workspace) begin() *job {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.started++
	j := &job{id: randomHex(8), number: w.started}
	w.running[j] = struct{}{}
	return j
}

func (w *Workspace) forget(j *job) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.running, j)
}

// alone says that no other command was running since this one was started.
func (w *Workspace) alone(j *job) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.started != j.number {
		return false
	}
	for other := range w.running {
		if other != j {
			return false
		}
	}
	return true
}

func (w *Workspace) alive(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, workspaces.ProbeTimeout)
	defer cancel()
	return w.transport.Alive(ctx)
}

// orGone returns err, or that the sandbox is gone, which its infrastructure may take a moment to know.
func (w *Workspace) orGone(ctx context.Context, err error) error {
	for range goneTries {
		if gone := w.alive(ctx); errors.Is(gone, workspaces.ErrGone) {
			return gone
		}
		if !sleep(ctx, stopPoll) {
			break
		}
	}
	return err
}

// A call is what a session is to do.
type call struct {
	id        string // by which no two sessions do it
	text      string
	stdin     func(io.Writer) // writes what follows the text; nil: nothing
	out, errs io.Writer
	spare     bool          // it may have to be stopped
	patience  time.Duration // until it is given up
	sent      func()        // is called before a session gets it; may be nil
}

// call makes a call, in another session where the first is lost before it took it. Errors: the context's cause, errGuard where
// nothing was heard in time, workspaces.ErrOutcomeUnknown where it was taken and its report is lost.
func (w *Workspace) call(ctx context.Context, k call) (r report, warm bool, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, k.patience, errGuard)
	defer cancel()
	defer func() {
		if err != nil && ctx.Err() != nil { // a sandbox that is being disposed fails in many ways
			err = context.Cause(ctx)
		}
	}()
	deadline, _ := ctx.Deadline()
	var fed atomic.Bool
	var lost error
	for range 2 {
		s, wasWaiting, err := w.pool.take(ctx)
		if err != nil {
			unheard := errors.Is(err, workspaces.ErrUnavailable) // nor would be why
			if lost != nil {
				err, unheard = fmt.Errorf("%w (before: %w)", err, lost), false
			}
			if ctx.Err() == nil && !unheard {
				err = w.orGone(ctx, err)
			}
			return report{}, false, err
		}
		warm = warm || wasWaiting
		if k.spare {
			w.pool.awaitSpare(ctx)
		}
		r, lost = w.in(ctx, s, k, int64(w.clock.now()+time.Until(deadline).Seconds()), &fed)
		if lost == nil && r.word == "claimed" {
			return r, warm, fmt.Errorf("%w: its session ended without a report, as after kill -9 -1", workspaces.ErrOutcomeUnknown)
		}
		if lost == nil && r.word == "late" {
			return r, warm, errGuard
		}
		if !errors.Is(lost, errLost) {
			return r, warm, lost
		}
		if fed.Load() {
			break
		}
	}
	return report{}, warm, w.orGone(ctx, fmt.Errorf("%w: %w", workspaces.ErrOutcomeUnknown, lost))
}

// in makes a call in a session.
func (w *Workspace) in(ctx context.Context, s *session, k call, latest int64, fed *atomic.Bool) (report, error) {
	defer s.close()
	defer s.errs.detach()
	defer s.out.detach()
	stdin := k.stdin
	if stdin != nil {
		stdin = func(to io.Writer) { fed.Store(true); k.stdin(to) }
	}
	if k.sent != nil {
		k.sent()
	}
	nonce := randomHex(16)
	s.send(nonce, fmt.Sprintf("begin %s %s %d\n%s", nonce, k.id, latest, k.text), stdin, k.out, k.errs)
	for _, done := range []chan struct{}{s.out.done, s.errs.done} {
		select {
		case <-done:
			continue
		default:
		}
		select {
		case <-done:
		case <-ctx.Done():
			return report{}, context.Cause(ctx)
		case <-s.ended:
			select {
			case <-done: // it came before the end
				continue
			default:
			}
			if s.lost != nil {
				return report{}, fmt.Errorf("%w: %w", errLost, s.lost)
			}
			return report{}, errLost
		}
	}
	return s.out.report, nil
}
