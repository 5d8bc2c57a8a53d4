package safe

import (
	"context"
	"errors"
	"io/fs"

	"github.com/carrel-dev/carrel/workspaces"
)

// The values of error.type that do not come from an error alone.
const (
	// ErrorTimeout is a command that did not end within its timeout.
	ErrorTimeout = "timeout"
	// ErrorOther is semconv's value for an error that has no kind of its own.
	ErrorOther = "_OTHER"
)

// ErrorType returns the kind of err: one of a short list, for the attribute error.type. It is
// empty for nil.
func ErrorType(err error) string {
	if err == nil {
		return ""
	}
	// What carrel found out comes before the context's end that made it look, and both
	// before the step of a checkout in which it happened.
	for _, kind := range []struct {
		is   error
		name string
	}{
		{workspaces.ErrGone, "gone"},
		{workspaces.ErrExpired, "expired"},
		{workspaces.ErrDisposed, "disposed"},
		{workspaces.ErrRunEnded, "run_ended"},
		{workspaces.ErrClosed, "closed"},
		{workspaces.ErrLimitReached, "limit_reached"},
		{workspaces.ErrRefHeld, "ref_held"},
		{workspaces.ErrUnsupported, "unsupported"},
		{workspaces.ErrUnavailable, "unavailable"},
		{workspaces.ErrOutcomeUnknown, "outcome_unknown"},
		{workspaces.ErrTooLarge, "too_large"},
		{context.Canceled, "cancelled"},
		{context.DeadlineExceeded, "deadline_exceeded"},
	} {
		if errors.Is(err, kind.is) {
			return kind.name
		}
	}
	if checkout := (*workspaces.CheckoutError)(nil); errors.As(err, &checkout) {
		return "checkout"
	}
	for _, kind := range []struct {
		is   error
		name string
	}{
		{workspaces.ErrInvalidInput, "invalid_input"},
		{workspaces.ErrInvalidConfig, "invalid_config"},
		{workspaces.ErrNotFound, "not_found"},
		{fs.ErrNotExist, "not_found"},
		{fs.ErrExist, "exists"},
		{fs.ErrPermission, "permission"},
	} {
		if errors.Is(err, kind.is) {
			return kind.name
		}
	}
	return ErrorOther
}
