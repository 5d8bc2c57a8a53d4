package k8s

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"github.com/carrel-dev/carrel/workspaces"
)

// mapped gives an error of the API server or of the way to it the sentinel it stands for, by its type.
func mapped(err error) error {
	switch {
	case err == nil, errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded), errors.Is(err, workspaces.ErrUnavailable):
		return err
	case transient(err):
		return fmt.Errorf("%w: the Kubernetes API: %w", workspaces.ErrUnavailable, err)
	}
	return err
}

// transient: the API server is away, restarts, or has too much to do.
func transient(err error) bool {
	var network net.Error
	return apierrors.IsTooManyRequests(err) || apierrors.IsServerTimeout(err) || apierrors.IsTimeout(err) || apierrors.IsServiceUnavailable(err) ||
		apierrors.IsInternalError(err) || apierrors.IsUnexpectedServerError(err) ||
		utilnet.IsConnectionRefused(err) || utilnet.IsConnectionReset(err) || utilnet.IsProbableEOF(err) ||
		errors.Is(err, syscall.EPIPE) || errors.Is(err, io.ErrUnexpectedEOF) || errors.As(err, &network)
}

const (
	retryPause    = 100 * time.Millisecond
	retryPauseMax = 2 * time.Second
)

// retry repeats a call that may be made again, while the API server cannot answer it and ctx lasts.
func retry[T any](ctx context.Context, call func() (T, error)) (T, error) {
	for pause := retryPause; ; pause = min(2*pause, retryPauseMax) {
		result, err := call()
		if err == nil || !transient(err) || ctx.Err() != nil {
			return result, mapped(err)
		}
		if seconds, ok := apierrors.SuggestsClientDelay(err); ok {
			pause = max(pause, time.Duration(seconds)*time.Second)
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return result, mapped(err)
		}
	}
}
