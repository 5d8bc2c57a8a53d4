package workspaces

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
)

// proves O1
func TestReportToolErrorO1(t *testing.T) {
	ctx := context.Background()
	ReportToolError(ctx, ErrGone) // nobody listens

	var outer, inner []error
	ctx = ContextWithToolErrorReporter(ctx, func(err error) { outer = append(outer, err) })
	nested := ContextWithToolErrorReporter(ctx, func(err error) { inner = append(inner, err) })
	silent := ContextWithToolErrorReporter(ctx, nil)

	ReportToolError(ctx, ErrGone)
	ReportToolError(ctx, nil)
	ReportToolError(nested, ErrExpired)
	ReportToolError(silent, ErrClosed)

	require.Equal(t, []error{ErrGone}, outer)
	require.Equal(t, []error{ErrExpired}, inner)
}
