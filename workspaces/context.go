package workspaces

import "context"

type runKey struct{}

// ContextWithRun returns a context that carries a run's handle to the tools called
// with it.
func ContextWithRun(ctx context.Context, run *Run) context.Context {
	return context.WithValue(ctx, runKey{}, run)
}

// RunFromContext returns the handle that ContextWithRun put into ctx, or nil.
func RunFromContext(ctx context.Context) *Run {
	run, _ := ctx.Value(runKey{}).(*Run)
	return run
}
