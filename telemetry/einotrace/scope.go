package einotrace

import (
	"sync"

	"github.com/cloudwego/eino/callbacks"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/carrel-dev/carrel/telemetry/internal/safe"
)

// errorAbandoned is the error.type of what never reported its end.
const errorAbandoned = "abandoned"

// A scope is one call of a component. Scopes form a tree, so that a call which reports no end, after
// a panic say, ends with what it was called by.
type scope struct {
	info    *callbacks.RunInfo
	span    trace.Span
	parent  *scope // nil for the outermost
	content bool

	mu        sync.Mutex
	followed  bool // a goroutine of the handler will finish it
	ended     bool
	children  map[*scope]struct{}
	toolError error
}

// outcome is how a call ended.
type outcome struct {
	err         error
	interrupted bool
	abandoned   bool
	attributes  []attribute.KeyValue
}

// adopt makes child end with s at the latest. It is false when s has ended.
func (s *scope) adopt(child *scope) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return false
	}
	if s.children == nil {
		s.children = make(map[*scope]struct{})
	}
	s.children[child] = struct{}{}
	return true
}

func (s *scope) forget(child *scope) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.children, child)
}

func (s *scope) hasEnded() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ended
}

// follow claims the end of s for a goroutine. It is false when somebody has it.
func (s *scope) follow() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended || s.followed {
		return false
	}
	s.followed = true
	return true
}

// reportToolError is called by the tool itself.
func (s *scope) reportToolError(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.toolError == nil {
		s.toolError = err
	}
}

// finish ends the span, once, and those below that nobody will end.
func (s *scope) finish(out outcome) { s.end(out, false) }

func (s *scope) end(out outcome, unlessFollowed bool) {
	s.mu.Lock()
	if s.ended || unlessFollowed && s.followed {
		s.mu.Unlock()
		return
	}
	s.ended = true
	left, toolError := s.children, s.toolError
	s.children = nil
	s.mu.Unlock()

	for child := range left {
		child.end(outcome{abandoned: true}, true)
	}
	s.record(out, toolError)
	s.span.End()
	if s.parent != nil {
		s.parent.forget(s)
	}
}

func (s *scope) record(out outcome, toolError error) {
	s.span.SetAttributes(out.attributes...)
	switch {
	case out.interrupted:
		s.span.SetAttributes(interruptedKey.Bool(true))
	case out.err != nil:
		safe.Fail(s.span, safe.ErrorType(out.err), out.err, s.content)
	case out.abandoned:
		safe.Fail(s.span, errorAbandoned, nil, s.content)
	case toolError != nil:
		s.span.SetAttributes(toolErrorKey.Bool(true))
		safe.Fail(s.span, safe.ErrorType(toolError), toolError, s.content)
	}
}
