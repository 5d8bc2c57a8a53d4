package contracttest

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

// A recorder is the testing.TB of one case. It collects what fails instead of failing a test, so that
// a case also runs against a provider that it must fail, and a watchdog can give up on it.
type recorder struct {
	testing.TB // the test's own; nil where there is none

	name   string
	ctx    context.Context
	cancel context.CancelFunc

	mu       sync.Mutex
	failures []string
	logs     []string
	cleanups []func()
}

func newRecorder(name string, t testing.TB) *recorder {
	r := &recorder{TB: t, name: name}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	return r
}

// run calls body, and then what Cleanup was given, in a goroutine of its own. After limit it
// gives up: it notes where all goroutines are, ends Context, and waits a last time.
func (r *recorder) run(limit time.Duration, body func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer r.clean()
		defer r.cancel()
		r.protect(body)
	}()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-done:
		return
	case <-timer.C:
	}
	stacks := make([]byte, 1<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	r.Errorf("the case has not ended after %s; the goroutines:\n%s", limit, stacks)
	r.cancel()
	last := time.NewTimer(limit / 3)
	defer last.Stop()
	select {
	case <-done:
	case <-last.C:
	}
}

// protect calls f in its own goroutine, which FailNow may end, and makes a panic a failure.
func (r *recorder) protect(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			if p := recover(); p != nil {
				stack := make([]byte, 16<<10)
				r.Errorf("panic: %v\n%s", p, stack[:runtime.Stack(stack, false)])
			}
		}()
		f()
	}()
	<-done
}

func (r *recorder) clean() {
	for {
		r.mu.Lock()
		n := len(r.cleanups)
		if n == 0 {
			r.mu.Unlock()
			return
		}
		last := r.cleanups[n-1]
		r.cleanups = r.cleanups[:n-1]
		r.mu.Unlock()
		r.protect(last)
	}
}

// report returns what failed and what was logged.
func (r *recorder) report() (failures, logs []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failures, r.logs
}

func (r *recorder) fail(text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failures = append(r.failures, strings.TrimSpace(text))
}

func (r *recorder) Helper()                  {}
func (r *recorder) Name() string             { return r.name }
func (r *recorder) Context() context.Context { return r.ctx }
func (r *recorder) Error(args ...any)        { r.fail(fmt.Sprintln(args...)) }
func (r *recorder) Fail()                    { r.fail("failed") }
func (r *recorder) FailNow()                 { r.stop("failed") }
func (r *recorder) Fatal(args ...any)        { r.Error(args...); runtime.Goexit() }
func (r *recorder) Log(args ...any)          { r.log(fmt.Sprintln(args...)) }
func (r *recorder) Skip(args ...any)         { r.stop("skipped: " + fmt.Sprint(args...)) }
func (r *recorder) SkipNow()                 { r.stop("skipped") }
func (r *recorder) Skipped() bool            { return false }

func (r *recorder) Errorf(format string, args ...any) { r.fail(fmt.Sprintf(format, args...)) }
func (r *recorder) Fatalf(format string, args ...any) { r.Errorf(format, args...); runtime.Goexit() }
func (r *recorder) Logf(format string, args ...any)   { r.log(fmt.Sprintf(format, args...)) }
func (r *recorder) Skipf(format string, args ...any)  { r.Skip(fmt.Sprintf(format, args...)) }

// stop ends the goroutine. Where nothing says why yet, reason does: a case is never skipped.
func (r *recorder) stop(reason string) {
	if !r.Failed() {
		r.fail(reason)
	}
	runtime.Goexit()
}

func (r *recorder) Failed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.failures) > 0
}

func (r *recorder) log(text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.logs = append(r.logs, strings.TrimSpace(text))
}

func (r *recorder) Cleanup(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cleanups = append(r.cleanups, f)
}

func (r *recorder) TempDir() string {
	dir, err := os.MkdirTemp("", "contracttest-")
	if err != nil {
		r.Fatalf("%v", err)
	}
	r.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			r.Errorf("remove the case's temporary directory: %v", err)
		}
	})
	return dir
}
