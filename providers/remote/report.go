package remote

import (
	"bytes"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// lineMax bounds a line of the session's own.
const lineMax = 256

// A report is how a call ended, as its session says.
type report struct {
	word       string // an exit code, or why there is none
	began, now string // seconds since the boot
	oom        bool   // the kernel has killed for memory meanwhile
}

// elapsed is how long the command ran, in seconds. It is negative where that is not known.
func (r report) elapsed() float64 {
	began, err := strconv.ParseFloat(r.began, 64)
	if err != nil {
		return -1
	}
	now, err := strconv.ParseFloat(r.now, 64)
	if err != nil {
		return -1
	}
	return now - began
}

func parseReport(line string) report {
	fields := strings.Fields(line)
	if len(fields) != 5 {
		return report{word: "malformed"}
	}
	before, err := strconv.ParseInt(fields[3], 10, 64)
	after, errAfter := strconv.ParseInt(fields[4], 10, 64)
	return report{word: fields[0], began: fields[1], now: fields[2], oom: err == nil && errAfter == nil && after > before}
}

// A splitter takes one stream of a session apart: first a line that says that it is ready, on one of
// the two; then what the call writes, for the sink; then the report. What comes later is nobody's.
type splitter struct {
	ready chan string // gets the uptime that the ready line says
	done  chan struct{}

	mu     sync.Mutex
	line   []byte // what came of a line of the session's own
	said   []byte // other lines before it was ready
	sink   io.Writer
	marker []byte // what the report begins with; nil: no call was made yet
	held   []byte // may be the beginning of marker
	inLine bool   // the marker has come
	ended  bool
	report report
}

func newSplitter() *splitter {
	return &splitter{ready: make(chan string, 1), done: make(chan struct{})}
}

// expect says where the output of a call goes, and by what its report is known.
func (s *splitter) expect(nonce string, sink io.Writer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.marker, s.sink = []byte("\x01"+nonce+" "), sink
}

// detach has nothing written to the sink any more.
func (s *splitter) detach() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sink = nil
}

// Write never fails: who reads a session's output reads all of it.
func (s *splitter) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(p)
	switch {
	case s.ended:
	case s.marker == nil:
		s.takeReady(p)
	default:
		s.take(p)
	}
	return n, nil
}

func (s *splitter) takeReady(p []byte) {
	for _, b := range p {
		if b != '\n' {
			if len(s.line) < lineMax {
				s.line = append(s.line, b)
			}
			continue
		}
		if uptime, ok := bytes.CutPrefix(s.line, []byte("\x01ready ")); ok {
			select {
			case s.ready <- string(uptime):
			default:
			}
			s.line = s.line[:0]
			continue
		}
		s.said = append(s.said, s.line...)
		s.said = append(s.said[:min(len(s.said), 2*lineMax)], ' ')
		s.line = s.line[:0]
	}
}

func (s *splitter) take(p []byte) {
	if !s.inLine {
		rest := p
		if len(s.held) > 0 {
			rest = slices.Concat(s.held, p)
			s.held = nil
		}
		i := bytes.Index(rest, s.marker)
		if i < 0 {
			keep := len(rest) - beginning(rest, s.marker)
			s.held = bytes.Clone(rest[keep:])
			s.deliver(rest[:keep])
			return
		}
		s.deliver(rest[:i])
		s.inLine, s.line = true, nil
		p = rest[i+len(s.marker):]
	}
	end := bytes.IndexByte(p, '\n')
	if end < 0 && len(s.line)+len(p) <= lineMax {
		s.line = append(s.line, p...)
		return
	}
	if end < 0 {
		end = 0
	}
	s.report = parseReport(string(append(s.line, p[:end]...)))
	s.ended = true
	close(s.done)
}

// rest delivers what was held back of a stream that has ended without a report.
func (s *splitter) rest() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ended && s.marker != nil {
		s.deliver(s.held)
		s.held = nil
	}
}

func (s *splitter) deliver(p []byte) {
	if len(p) > 0 && s.sink != nil {
		_, _ = s.sink.Write(p)
	}
}

// beginning returns how many bytes at the end of p marker may begin with.
func beginning(p, marker []byte) int {
	for n := min(len(p), len(marker)-1); n > 0; n-- {
		if bytes.HasSuffix(p, marker[:n]) {
			return n
		}
	}
	return 0
}

// noise is what a session said instead of being ready.
func (s *splitter) noise() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return string(append(s.said, s.line...))
}
