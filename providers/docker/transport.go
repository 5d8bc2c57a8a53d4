package docker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/client"
	"github.com/docker/docker/pkg/stdcopy"

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
	attached, err := t.client.ContainerExecAttach(ctx, created.ID, container.ExecAttachOptions{})
	if err != nil {
		return 0, t.failure(err)
	}
	defer attached.Close()
	stop := context.AfterFunc(ctx, attached.Close)
	defer stop()
	if streams.Stdin != nil {
		fed := make(chan struct{})
		go func() {
			defer close(fed)
			_, _ = io.Copy(attached.Conn, streams.Stdin)
			_ = attached.CloseWrite()
		}()
		defer func() {
			attached.Close()
			if closer, ok := streams.Stdin.(io.Closer); ok {
				closer.Close()
				<-fed
			}
		}()
	}
	_, err = stdcopy.StdCopy(streams.Stdout, streams.Stderr, attached.Reader)
	if ctx.Err() != nil {
		return 0, ctx.Err()
	}
	if err != nil {
		return 0, fmt.Errorf("%w: the output of an exec broke off: %w", workspaces.ErrUnavailable, err)
	}
	return t.exitCode(ctx, created.ID)
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
