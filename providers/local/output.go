//go:build linux || darwin

package local

import (
	"errors"
	"io"
	"os"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	outputBuffer = 32 << 10

	// pipeMax is the most that a pipe holds, however it was enlarged.
	pipeMax = 1 << 20

	// sinkPatience is how long an output's sink may take for what is left, once the call is
	// over its time.
	sinkPatience = 500 * time.Millisecond
)

// An output brings what a command writes to its sink until the command ends, and drains
// the pipe from then on: a job in the background that holds it is neither blocked nor
// sent SIGPIPE.
type output struct {
	pipe *os.File // our end
	sink io.Writer

	taken chan struct{} // closed when all that the command wrote is with the sink
	held  bool          // set before: somebody still holds the other end

	quiet atomic.Bool // the call has returned: nothing more goes to the sink
}

func newOutput(pipe *os.File, sink io.Writer) *output {
	return &output{pipe: pipe, sink: sink, taken: make(chan struct{})}
}

// run ends with the last holder of the pipe, or when the pipe is closed.
func (o *output) run() {
	defer o.pipe.Close()
	if o.held = o.take(); !o.held {
		o.pipe.Close() // so that all is closed when the call returns
	}
	close(o.taken)
	if o.held {
		_, _ = io.Copy(io.Discard, o.pipe)
	}
}

// take says whether somebody still holds the pipe.
func (o *output) take() bool {
	buffer := make([]byte, outputBuffer)
	for {
		n, err := o.pipe.Read(buffer)
		o.deliver(buffer[:n])
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return o.takeRest(buffer)
		}
		if err != nil {
			return false
		}
	}
}

// takeRest takes what is in the pipe now and waits for nothing.
func (o *output) takeRest(buffer []byte) (held bool) {
	if err := o.pipe.SetReadDeadline(time.Time{}); err != nil {
		return false // closed
	}
	pipe, err := o.pipe.SyscallConn()
	if err != nil {
		return false
	}
	for left := pipeMax; left > 0; {
		var n int
		var failed error
		err := pipe.Read(func(fd uintptr) bool {
			n, failed = syscall.Read(int(fd), buffer)
			return true // also when there is nothing: do not wait
		})
		switch {
		case err != nil:
			return false
		case failed == syscall.EINTR:
		case failed == syscall.EAGAIN:
			return true
		case failed != nil || n == 0:
			return false
		default:
			o.deliver(buffer[:n])
			left -= n
		}
	}
	return true
}

func (o *output) deliver(chunk []byte) {
	if len(chunk) > 0 && !o.quiet.Load() {
		_, _ = o.sink.Write(chunk)
	}
}

// finish has the output take what is left, now that the command has ended or the call must
// return.
func (o *output) finish() { _ = o.pipe.SetReadDeadline(time.Unix(1, 0)) }

// abandon waits a moment for the sink, and then leaves it alone.
func (o *output) abandon() {
	timer := time.NewTimer(sinkPatience)
	defer timer.Stop()
	select {
	case <-o.taken:
	case <-timer.C:
		o.quiet.Store(true)
	}
}
