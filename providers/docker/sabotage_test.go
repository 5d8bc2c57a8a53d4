package docker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"regexp"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/docker/docker/client"
	"github.com/stretchr/testify/require"

	"github.com/carrel-dev/carrel/workspaces"
)

// A fault is what happens to a connection at a request.
type fault string

const (
	cutBefore fault = "cut before" // the engine never gets the request
	cutAfter  fault = "cut after"  // it does what it was asked, and nobody hears of it
	halfClose fault = "half-closed"
	garbage   fault = "garbage"
	silence   fault = "silence"
	slow      fault = "slow"
)

var faults = []fault{cutBefore, cutAfter, halfClose, garbage, silence, slow}

// A saboteur is the way to a real engine, and what goes wrong on it.
type saboteur struct {
	mu    sync.Mutex
	at    *regexp.Regexp // of a request's first line; nil: nothing goes wrong
	how   fault
	conns map[*badConn]struct{}
}

// sabotaged is a client whose connections the saboteur has.
func sabotaged(t *testing.T) (*client.Client, *saboteur) {
	t.Helper()
	s := &saboteur{conns: make(map[*badConn]struct{})}
	host, err := client.ParseHostURL(engine(t).DaemonHost())
	require.NoError(t, err)
	c, err := client.NewClientWithOpts(client.FromEnv, client.WithAPIVersionNegotiation(), client.WithDialContext(func(ctx context.Context, _, _ string) (net.Conn, error) {
		address := host.Host
		if host.Scheme == "unix" {
			address = host.Path
			if address == "" {
				address = host.Host
			}
		}
		conn, err := (&net.Dialer{}).DialContext(ctx, host.Scheme, address)
		if err != nil {
			return nil, err
		}
		bad := &badConn{Conn: conn, saboteur: s, closed: make(chan struct{})}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.conns[bad] = struct{}{}
		return bad, nil
	}))
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	return c, s
}

// arm has the next request whose first line matches go wrong.
func (s *saboteur) arm(at string, how fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.at, s.how = regexp.MustCompile(at), how
}

// armed says that nothing went wrong yet.
func (s *saboteur) armed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.at != nil
}

func (s *saboteur) fires(p []byte) fault {
	line, _, _ := bytes.Cut(p, []byte("\r\n"))
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.at == nil || !s.at.Match(line) {
		return ""
	}
	s.at = nil
	return s.how
}

// streams lists the connections that execs stream over.
func (s *saboteur) streams() (all []*badConn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for conn := range s.conns {
		if conn.streaming.Load() {
			all = append(all, conn)
		}
	}
	return all
}

// A badConn is a connection that something may happen to.
type badConn struct {
	net.Conn
	saboteur *saboteur
	once     sync.Once
	closed   chan struct{}

	how       atomic.Value // of fault
	streaming atomic.Bool
	said      atomic.Bool // a line "on"
	fooled    atomic.Bool
}

func (c *badConn) fault() fault {
	how, _ := c.how.Load().(fault)
	return how
}

var upgrade = []byte("Upgrade: tcp")

func (c *badConn) Write(p []byte) (int, error) {
	how := c.saboteur.fires(p)
	if how != "" {
		c.how.Store(how)
	}
	if bytes.Contains(p[:min(len(p), 1000)], upgrade) {
		c.streaming.Store(true)
	}
	if how == cutBefore {
		c.Close()
		return 0, net.ErrClosed
	}
	return c.Conn.Write(p)
}

func (c *badConn) Read(p []byte) (int, error) {
	if c.fault() == slow {
		time.Sleep(time.Millisecond)
		p = p[:min(len(p), 16)]
	}
	n, err := c.Conn.Read(p)
	switch c.fault() { // it may be another by now
	case cutAfter:
		c.Close()
		return 0, io.EOF
	case halfClose:
		return 0, io.EOF
	case garbage:
		if c.fooled.Swap(true) {
			return 0, io.EOF
		}
		return copy(p, "\x00\xff\x07 no such thing \r\n\r\n\x01\x02{]"), nil
	case silence:
		<-c.closed
		return 0, net.ErrClosed
	}
	if bytes.Contains(p[:n], []byte("on\n")) {
		c.said.Store(true)
	}
	return n, err
}

func (c *badConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}

func (c *badConn) Close() error {
	c.once.Do(func() {
		close(c.closed)
		c.saboteur.mu.Lock()
		defer c.saboteur.mu.Unlock()
		delete(c.saboteur.conns, c)
	})
	return c.Conn.Close()
}

// Whatever happens to a connection while a workspace is made, the call ends, and nothing is left.
func TestCreateOverBadConnections_W17(t *testing.T) {
	engine(t)
	for _, stage := range []struct{ name, at string }{
		{"ping", "/_ping "},
		{"info", "/info "},
		{"list", "/containers/json"},
		{"create", "/containers/create"},
		{"start", "/containers/[^/]*/start "},
		{"exec", "/containers/[^/]*/exec "},
		{"attach", "/exec/[^/]*/start "},
		{"exit code", "/exec/[^/]*/json "},
	} {
		t.Run(stage.name, func(t *testing.T) {
			t.Parallel()
			for _, how := range faults {
				t.Run(string(how), func(t *testing.T) {
					c, bad := sabotaged(t)
					s := newStand(t, c, Options{StartTimeout: 5 * time.Second}, nil)
					run := s.open(t, "run")
					bad.arm(stage.at, how)
					var acquired workspaces.Acquired
					err := within(t, "acquire", func() (err error) {
						acquired, err = run.Acquire(t.Context(), workspaces.AcquireOptions{})
						return err
					})
					require.False(t, bad.armed(), "nothing went wrong")
					if err != nil {
						t.Log(err)
						require.ErrorIs(t, err, workspaces.ErrUnavailable)
						require.NotEqual(t, slow, how)
						acquired, err = run.Acquire(t.Context(), workspaces.AcquireOptions{})
						require.NoError(t, err)
					}
					require.Equal(t, "on\n", shell(t, acquired.Workspace, "echo on"))
				})
			}
		})
	}
}

// A command runs at most once, whatever happens to the connection, and the next one runs.
func TestExecOverBadConnections_W17(t *testing.T) {
	engine(t)
	for _, stage := range []struct{ name, at string }{
		{"exec", "/containers/[^/]*/exec "},
		{"attach", "/exec/[^/]*/start "},
		{"exit code", "/exec/[^/]*/json "},
	} {
		for _, how := range faults {
			t.Run(stage.name+" "+string(how), func(t *testing.T) {
				t.Parallel()
				c, bad := sabotaged(t)
				w := newStand(t, c, Options{}, nil).workspace(t, workspaces.AcquireOptions{})
				shell(t, w, "true")
				for _, conn := range bad.streams() { // no session waits
					conn.Close()
				}
				bad.arm(stage.at, how)
				var result workspaces.Result
				err := within(t, "exec", func() (err error) {
					result, err = w.Exec(t.Context(), workspaces.Command{Args: []string{"sh", "-c", "echo x >>count; echo said"}, Timeout: 2 * time.Second})
					return err
				})
				t.Logf("%+v, %v", result, err)
				switch {
				case err != nil:
					requireAny(t, err, workspaces.ErrUnavailable, workspaces.ErrOutcomeUnknown)
				case result.TimedOut:
					require.Equal(t, silence, how)
				default:
					require.Equal(t, "said\n", result.Stdout)
					require.Equal(t, "x\n", shell(t, w, "cat count"))
				}
				require.Equal(t, "on\n", shell(t, w, "echo on"))
				require.Contains(t, []string{"", "x\n"}, shell(t, w, "cat count 2>/dev/null || :"))
			})
		}
	}
}

// What a command has done when its connection breaks is not known, and said so.
func TestStreamBreaks_W17(t *testing.T) {
	engine(t)
	for _, how := range []fault{cutAfter, halfClose, garbage, silence} {
		t.Run(string(how), func(t *testing.T) {
			t.Parallel()
			c, bad := sabotaged(t)
			w := newStand(t, c, Options{}, nil).workspace(t, workspaces.AcquireOptions{})
			out := newStarted()
			ran := make(chan error, 1)
			var result workspaces.Result
			go func() {
				var err error
				result, err = w.Exec(t.Context(), workspaces.Command{
					Args: []string{"sh", "-c", "echo x >>count; echo on; sleep 1; echo off"}, Timeout: 3 * time.Second, Stdout: out,
				})
				ran <- err
			}()
			<-out.began
			for _, conn := range bad.streams() {
				if conn.said.Load() {
					conn.how.Store(how)
				}
			}
			err := within(t, "exec", func() error { return <-ran })
			if how == silence {
				require.NoError(t, err)
				require.True(t, result.TimedOut, "%+v", result)
			} else {
				require.ErrorIs(t, err, workspaces.ErrOutcomeUnknown, fmt.Sprintf("%+v", result))
			}
			require.Equal(t, "on\n", result.Stdout)
			require.Equal(t, "x\n", shell(t, w, "cat count"))
		})
	}
}

// started is a sink that says when something was first written to it.
type started struct {
	once  sync.Once
	began chan struct{}
}

func newStarted() *started { return &started{began: make(chan struct{})} }

func (s *started) Write(p []byte) (int, error) {
	s.once.Do(func() { close(s.began) })
	return len(p), nil
}
