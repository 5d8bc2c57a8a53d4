package workspaces

import (
	"io"
	"sync"
	"time"
)

// sinkPatience is how long a chunk waits for a slow sink once the call is over its
// time.
const sinkPatience = 100 * time.Millisecond

// A stream is what a provider writes one output of a command to: it keeps what the Result
// needs and hands every chunk to the caller's sink, from a goroutine of its own so that a sink that
// blocks can be left behind (W4).
type stream struct {
	Output

	hurry <-chan struct{} // closed when the sink must no longer hold up the call

	mu     sync.Mutex // held by Write and close: one chunk at a time
	chunks chan []byte
	taken  chan struct{}
	buffer []byte
}

// newStream returns a stream that also writes to sink, unless that is nil. The caller calls close.
func newStream(sink io.Writer, hurry <-chan struct{}) *stream {
	s := &stream{hurry: hurry}
	if sink != nil {
		s.chunks = make(chan []byte)
		// Room for one: the goroutine gets rid of a late answer when nobody waits for it.
		s.taken = make(chan struct{}, 1)
		go pump(sink, s.chunks, s.taken)
	}
	return s
}

// pump ends with chunks, or when the write in which the sink blocked returns.
func pump(sink io.Writer, chunks <-chan []byte, taken chan<- struct{}) {
	for chunk := range chunks {
		_, err := sink.Write(chunk)
		taken <- struct{}{}
		if err != nil {
			sink = io.Discard
		}
	}
}

func (s *stream) Write(p []byte) (int, error) {
	n, _ := s.Output.Write(p)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.chunks == nil {
		return n, nil
	}
	// The provider uses p again as soon as we return, a sink that was left behind may still read.
	s.buffer = append(s.buffer[:0], p...)
	s.chunks <- s.buffer
	select {
	case <-s.taken:
		return n, nil
	case <-s.hurry:
	}
	select {
	case <-s.taken:
	case <-time.After(sinkPatience):
		s.detach()
	}
	return n, nil
}

// detach leaves the sink behind.
func (s *stream) detach() {
	if s.chunks != nil {
		close(s.chunks)
		s.chunks, s.buffer = nil, nil
	}
}

// close makes sure that no further write to the sink starts.
func (s *stream) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.detach()
}
