package workspaces

import "context"

type toolErrorKey struct{}

// ContextWithToolErrorReporter returns a context below which ReportToolError calls report. It is
// how telemetry learns that a tool answered the model with an error: such an answer
// is an ordinary result to the framework that runs the tool. report is called from
// any goroutine, at the same time too, and must not block. The innermost reporter is
// the one that is called; a nil one silences those further out.
func ContextWithToolErrorReporter(ctx context.Context, report func(err error)) context.Context {
	return context.WithValue(ctx, toolErrorKey{}, report)
}

// ReportToolError says that the tool which was called with ctx answers the model with err
// instead of failing. Without a reporter, or for a nil err, it does nothing.
func ReportToolError(ctx context.Context, err error) {
	report, _ := ctx.Value(toolErrorKey{}).(func(err error))
	if report != nil && err != nil {
		report(err)
	}
}
