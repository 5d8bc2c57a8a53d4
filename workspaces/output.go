package workspaces

import (
	"fmt"
	"strings"
	"sync"
	"unicode/utf8"
)

// tailMax is how much of a long stream's end can matter: the suffix that String keeps, and a
// character's bytes before it, so that its first byte is never taken for a stray one.
const tailMax = OutputMaxBytes - OutputHeadBytes + 2*utf8.UTFMax

// An Output keeps what a Result holds of a stream: all of up to OutputMaxBytes, or its
// beginning and its end (W2). It is an io.Writer that never fails, safe for concurrent use;
// the zero value is ready. It holds at most about 112 KiB whatever is written.
type Output struct {
	mu    sync.Mutex
	head  []byte // the first OutputMaxBytes raw bytes
	tail  []byte // a ring of the last tailMax raw bytes, filled once head is full
	next  int    // where the ring goes on
	total int64
}

// Write takes all of p.
func (o *Output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	n := len(p)
	o.total += int64(n)
	if room := OutputMaxBytes - len(o.head); room > 0 {
		k := min(room, len(p))
		o.head = append(o.head, p[:k]...)
		p = p[k:]
	}
	if len(p) == 0 {
		return n, nil
	}
	if o.tail == nil {
		o.tail = append(make([]byte, 0, tailMax), o.head[OutputMaxBytes-tailMax:]...)
	}
	p = p[max(0, len(p)-tailMax):]
	k := copy(o.tail[o.next:], p)
	copy(o.tail, p[k:])
	o.next = (o.next + len(p)) % tailMax
	return n, nil
}

// Bytes is how many raw bytes were written.
func (o *Output) Bytes() int64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.total
}

// Truncated says that String lacks bytes.
func (o *Output) Truncated() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return !o.whole()
}

// whole says that the stream fits, its invalid bytes replaced.
func (o *Output) whole() bool {
	return o.total <= OutputMaxBytes && validLen(o.head) <= OutputMaxBytes
}

// Head is the part of String that cannot change any more while the stream grows: at most
// OutputHeadBytes, ending with a character. Head of a finished stream is the first
// part of String, up to the omission.
func (o *Output) Head() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	head, _ := prefix(o.head)
	return head
}

// prefix is the longest rune-aligned prefix of raw, invalid bytes replaced, of at most
// OutputHeadBytes, and how many raw bytes it stands for. It leaves out an incomplete
// character at the very end of raw.
func prefix(raw []byte) (string, int) {
	var b strings.Builder
	i := 0
	for i < len(raw) && utf8.FullRune(raw[i:]) {
		r, size := utf8.DecodeRune(raw[i:])
		if b.Len()+utf8.RuneLen(r) > OutputHeadBytes {
			break
		}
		b.WriteRune(r)
		i += size
	}
	return b.String(), i
}

// String is the stream as Result.Stdout holds it: valid UTF-8 of at most OutputMaxBytes
// bytes.
func (o *Output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.whole() {
		return toValid(o.head)
	}
	tail := o.head
	if o.tail != nil {
		tail = append(append(make([]byte, 0, tailMax), o.tail[o.next:]...), o.tail[:o.next]...)
	}
	head, headRaw := prefix(o.head)

	// Grow the suffix by one character at a time while all fits. A longer suffix can
	// shorten the number in the line, but never by more than the suffix grew.
	start, length := len(tail), 0
	for start > 0 {
		r, size := utf8.DecodeLastRune(tail[:start])
		longer := length + utf8.RuneLen(r)
		if sum := len(head) + longer; sum > OutputMaxBytes-omissionMax {
			next := omission(head, o.total-int64(headRaw)-int64(len(tail)-start+size))
			if sum+len(next) > OutputMaxBytes {
				break
			}
		}
		start, length = start-size, longer
	}
	line := omission(head, o.total-int64(headRaw)-int64(len(tail)-start))
	return head + line + toValid(tail[start:])
}

// omissionMax is the longest that omission can be.
const omissionMax = len("\n[9223372036854775807 bytes left out]\n")

// omission is the line between head and suffix.
func omission(head string, n int64) string {
	line := fmt.Sprintf("[%d bytes left out]\n", n)
	if head != "" && !strings.HasSuffix(head, "\n") {
		line = "\n" + line
	}
	return line
}

// validLen is len(toValid(raw)).
func validLen(raw []byte) int {
	n := 0
	for len(raw) > 0 {
		r, size := utf8.DecodeRune(raw)
		n += utf8.RuneLen(r)
		raw = raw[size:]
	}
	return n
}

// toValid replaces each invalid byte by U+FFFD.
func toValid(raw []byte) string {
	if utf8.Valid(raw) {
		return string(raw)
	}
	var b strings.Builder
	for len(raw) > 0 {
		r, size := utf8.DecodeRune(raw)
		b.WriteRune(r)
		raw = raw[size:]
	}
	return b.String()
}
