package docker

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/client"

	"github.com/carrel-dev/carrel/providers/remote"
	"github.com/carrel-dev/carrel/workspaces"
)

// A transport is the way into one container.
type transport struct {
	client client.APIClient
	id     string
	user   string
}

var _ remote.Transport = (*transport)(nil)

// Exec runs argv in the container.
func (t *transport) Exec(ctx context.Context, argv []string, streams remote.Streams) (exit int, err error) {
	return t.execAs(ctx, t.user, argv, streams)
}

// execAs runs argv as a user. The end of ctx closes the connection; what runs goes on.
func (t *transport) execAs(ctx context.Context, user string, argv []string, streams remote.Streams) (exit int, err error) {
	created, err := t.client.ContainerExecCreate(ctx, t.id, container.ExecOptions{
		User: user, Cmd: argv, AttachStdin: streams.Stdin != nil, AttachStdout: true, AttachStderr: true,
	})
	if err != nil {
		return 0, t.failure(err)
	}
	conn, output, err := t.attach(ctx, created.ID)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	if streams.Stdin != nil {
		fed := make(chan struct{})
		go func() {
			defer close(fed)
			_, _ = io.Copy(conn, streams.Stdin)
			if half, ok := conn.(interface{ CloseWrite() error }); ok {
				_ = half.CloseWrite()
			}
		}()
		defer func() {
			conn.Close()
			if closer, ok := streams.Stdin.(io.Closer); ok {
				closer.Close()
				<-fed
			}
		}()
	}
	err = demultiplex(output, streams.Stdout, streams.Stderr)
	if ctx.Err() != nil {
		return 0, ctx.Err()
	}
	if err != nil {
		return 0, fmt.Errorf("%w: the output of an exec broke off: %w", workspaces.ErrUnavailable, err)
	}
	return t.exitCode(ctx, created.ID)
}

// attach starts an exec and returns the connection of its streams, and what to read its output from. The client's own
// ContainerExecAttach does not heed ctx: it waits for ever for an engine that does not answer.
func (t *transport) attach(ctx context.Context, execID string) (net.Conn, *bufio.Reader, error) {
	host, err := client.ParseHostURL(t.client.DaemonHost())
	if err != nil {
		return nil, nil, err
	}
	if host.Scheme != "tcp" {
		host.Host, host.Path = client.DummyHost, ""
	}
	host.Scheme = "http"
	start := host.JoinPath("v"+t.client.ClientVersion(), "exec", execID, "start").String()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, start, strings.NewReader(`{"Detach":false,"Tty":false}`))
	if err != nil {
		return nil, nil, err
	}
	request.Header = http.Header{"Content-Type": {"application/json"}, "Connection": {"Upgrade"}, "Upgrade": {"tcp"}}

	broken := func(err error) error {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return fmt.Errorf("%w: the Docker engine, when an exec was to start: %w", workspaces.ErrUnavailable, err)
	}
	conn, err := t.client.Dialer()(ctx)
	if err != nil {
		return nil, nil, broken(err)
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	if err := request.Write(conn); err != nil {
		conn.Close()
		return nil, nil, broken(err)
	}
	output := bufio.NewReaderSize(conn, 16<<10)
	response, err := http.ReadResponse(output, request)
	if err != nil {
		conn.Close()
		return nil, nil, broken(err)
	}
	defer response.Body.Close() // which does not close conn
	if response.StatusCode != http.StatusSwitchingProtocols {
		said, _ := io.ReadAll(io.LimitReader(response.Body, 500))
		conn.Close()
		if response.StatusCode == http.StatusNotFound {
			return nil, nil, fmt.Errorf("%w: the container was removed", workspaces.ErrGone)
		}
		return nil, nil, broken(fmt.Errorf("%s: %s", response.Status, bytes.TrimSpace(said)))
	}
	return conn, output, nil
}

// demultiplex takes the streams of an exec apart until they end. It keeps no frame: what is no engine could announce one
// of 4 GiB.
func demultiplex(from *bufio.Reader, stdout, stderr io.Writer) error {
	for {
		var header [8]byte
		if _, err := io.ReadFull(from, header[:]); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		var to io.Writer
		switch [4]byte(header[:4]) {
		case [4]byte{1}:
			to = stdout
		case [4]byte{2}:
			to = stderr
		default:
			return fmt.Errorf("what the engine sent is no output: %q", header)
		}
		for left := int(binary.BigEndian.Uint32(header[4:])); left > 0; {
			if _, err := from.Peek(1); errors.Is(err, io.EOF) {
				return io.ErrUnexpectedEOF
			} else if err != nil {
				return err
			}
			part, _ := from.Peek(min(left, from.Buffered()))
			if _, err := to.Write(part); err != nil {
				return err
			}
			left -= len(part)
			_, _ = from.Discard(len(part))
		}
	}
}

// The engine knows an exit code some time after the end of the output.
const (
	exitPoll = 5 * time.Millisecond
	exitWait = 10 * time.Second
)

// exitCode waits until the engine knows how an exec ended. Until then it says that nothing runs, exit code 0, or that it still
// does; a pid says that it was started at all.
func (t *transport) exitCode(ctx context.Context, execID string) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, exitWait)
	defer cancel()
	for pause := exitPoll; ; pause = min(2*pause, time.Second) {
		state, err := t.client.ContainerExecInspect(ctx, execID)
		if err != nil {
			return 0, t.failure(err)
		}
		if !state.Running && (state.Pid != 0 || state.ExitCode != 0) {
			return state.ExitCode, nil
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return 0, fmt.Errorf("%w: the engine does not know the exit code of an exec that ended", workspaces.ErrOutcomeUnknown)
		}
	}
}

// failure says what an error of an exec means: a container that is not there or does not run is gone.
func (t *transport) failure(err error) error {
	if errdefs.IsNotFound(err) {
		return fmt.Errorf("%w: the container was removed", workspaces.ErrGone)
	}
	if errdefs.IsConflict(err) { // it is paused, or not running any more
		return fmt.Errorf("%w: %w", workspaces.ErrUnavailable, err)
	}
	return mapped(err)
}

// Alive says whether the container runs, and why not.
func (t *transport) Alive(ctx context.Context) error {
	found, err := t.client.ContainerInspect(ctx, t.id)
	switch {
	case errdefs.IsNotFound(err):
		return fmt.Errorf("%w: the container was removed", workspaces.ErrGone)
	case err != nil:
		return mapped(err)
	case found.State == nil:
		return fmt.Errorf("%w: the engine says nothing of the container's state", workspaces.ErrUnavailable)
	case found.State.Running && !found.State.Dead:
		return nil
	}
	return fmt.Errorf("%w: the container %s", workspaces.ErrGone, ending(found.State))
}

// ending says how a container ended.
func ending(state *container.State) string {
	if state.ExitCode == 0 {
		return "ended at its expiry"
	}
	how := "has exited with code " + strconv.Itoa(state.ExitCode)
	if state.ExitCode == 137 || state.ExitCode == 143 {
		how = "was stopped or its main process killed (exit code " + strconv.Itoa(state.ExitCode) + ")"
	}
	if state.OOMKilled { // not only of the main process, nor only now
		how += "; a process in it had been killed for memory"
	}
	return how
}

const removalPoll = 50 * time.Millisecond

// Remove removes the container and its volumes. One that is not there is removed; a removal under way is waited for.
func (t *transport) Remove(ctx context.Context) error {
	for {
		err := t.client.ContainerRemove(ctx, t.id, container.RemoveOptions{Force: true, RemoveVolumes: true})
		switch {
		case err == nil, errdefs.IsNotFound(err):
			return nil
		case !errdefs.IsConflict(err):
			return mapped(err)
		}
		select {
		case <-time.After(removalPoll):
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		}
	}
}
