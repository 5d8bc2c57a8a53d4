package docker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/client"

	"github.com/carrel-dev/carrel/workspaces"
)

// mapped gives an error of the engine or of the way to it the sentinel it stands for, by its type.
func mapped(err error) error {
	var network net.Error
	switch {
	case err == nil, errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded), errors.Is(err, workspaces.ErrUnavailable):
		return err
	case client.IsErrConnectionFailed(err), errors.As(err, &network),
		errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF),
		errdefs.IsUnavailable(err), errdefs.IsInternal(err):
		return fmt.Errorf("%w: the Docker engine: %w", workspaces.ErrUnavailable, err)
	}
	return err
}

// silent says of the end of our own patience that the engine is not available.
func (p *Provider) silent(ctx context.Context, err error) error {
	if ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%w: the Docker engine was not done within %s: %w", workspaces.ErrUnavailable, p.settings.StartTimeout, err)
	}
	return err
}
