package remote

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/carrel-dev/carrel/workspaces"
)

//go:embed session.sh
var sessionScript string

const (
	// linesMax is up to what length a call is sent in lines, which the shell reads byte by byte and without
	// making a process.
	linesMax = 1500

	// chunkMax bounds a chunk of a command's standard input.
	chunkMax = 256 << 10
)

// A session is a shell in the sandbox that waits for one call. Whoever has it closes it.
type session struct {
	stdin     *io.PipeWriter
	out, errs *splitter
	hangUp    context.CancelFunc
	ended     chan struct{} // closed when the shell has ended or the connection is lost
	lost      error         // why, once ended is closed; nil where the shell ended by itself
}

// open starts a session and waits until it is ready. It ends with the workspace.
func (w *Workspace) open(ctx context.Context) (*session, error) {
	life, hangUp := context.WithCancel(w.life)
	stdin, toShell := io.Pipe()
	s := &session{
		stdin: toShell, out: newSplitter(), errs: newSplitter(), hangUp: hangUp, ended: make(chan struct{}),
	}
	if err := w.work.join(); err != nil {
		hangUp()
		return nil, err
	}
	go func() {
		defer w.work.leave()
		defer close(s.ended)
		defer stdin.Close()
		exit, err := w.transport.Exec(life, []string{"sh", "-c", sessionScript, "carrel", workspaces.Root},
			Streams{Stdin: stdin, Stdout: s.out, Stderr: s.errs})
		s.out.rest()
		s.errs.rest()
		if err == nil && exit != 0 {
			err = fmt.Errorf("its shell exited with code %d: %s", exit, strings.TrimSpace(s.errs.noise()+" "+s.out.noise()))
		}
		s.lost = err
	}()
	select {
	case line := <-s.errs.ready:
		uptime, err := strconv.ParseFloat(line, 64)
		if err != nil {
			s.close()
			return nil, fmt.Errorf("the sandbox's shell has no clock: %.100q", line)
		}
		w.clock.observe(uptime)
		return s, nil
	case <-s.ended:
		if s.lost == nil {
			return nil, errors.New("the sandbox's shell ended before it was ready")
		}
		return nil, s.lost
	case <-ctx.Done():
		s.close()
		return nil, context.Cause(ctx)
	}
}

// close hangs up: the shell reads the end of its input.
func (s *session) close() {
	s.stdin.Close()
	s.hangUp()
}

func (s *session) isDead() bool {
	select {
	case <-s.ended:
		return true
	default:
		return false
	}
}

// send makes the call, in the background: how it ends is seen by its reports.
func (s *session) send(nonce, text string, stdin func(io.Writer), out, errs io.Writer) {
	s.out.expect(nonce, out)
	s.errs.expect(nonce, errs)
	unit, size := "lines", strings.Count(text, "\n")
	if len(text) > linesMax {
		unit, size = "bytes", len(text)
	}
	go func() {
		if _, err := fmt.Fprintf(s.stdin, "%s %d\n%s", unit, size, text); err == nil && stdin != nil {
			stdin(s.stdin)
		}
	}()
}

// chunks writes what it reads as the session's feed wants it.
func chunks(to io.Writer, from io.Reader) {
	buffer := make([]byte, chunkMax)
	for {
		n, err := from.Read(buffer)
		if n > 0 {
			if _, failed := fmt.Fprintf(to, "%d\n", n); failed != nil {
				return
			}
			if _, failed := to.Write(buffer[:n]); failed != nil {
				return
			}
		}
		if err != nil {
			_, _ = io.WriteString(to, "0\n")
			return
		}
	}
}

// quote makes one word of the shell's of any text.
func quote(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }
