package telemetry

import (
	"context"
	"log/slog"
	"sync/atomic"

	semconv "go.opentelemetry.io/otel/semconv/v1.40.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/carrel-dev/carrel/telemetry/internal/safe"
	"github.com/carrel-dev/carrel/workspaces"
)

// New returns an observer for workspaces.Options. One observer may serve several
// managers; the metric of live workspaces is then their sum only when each has an
// observer of its own. The error is the meter provider's, for an instrument that it refuses.
func New(opts ...Option) (workspaces.Observer, error) {
	c := newConfig(opts)
	m, err := newMetrics(c.meters)
	if err != nil {
		return nil, err
	}
	return &observer{
		tracer:  c.tracers.Tracer(ScopeName, trace.WithSchemaURL(semconv.SchemaURL)),
		metrics: m,
		logger:  c.logger,
		content: c.content,
	}, nil
}

type observer struct {
	tracer  trace.Tracer
	metrics *metrics
	logger  *slog.Logger
	content bool
}

// spanKey finds this observer's own span: that of the context may be a
// child which somebody else started.
type spanKey struct{ observer *observer }

type operationSpan struct {
	span  trace.Span
	ended atomic.Bool
}

func (o *observer) Start(ctx context.Context, operation workspaces.Operation) context.Context {
	ctx, span := o.tracer.Start(ctx, spanName(operation.Kind),
		trace.WithAttributes(startAttributes(operation, o.content)...))
	return context.WithValue(ctx, spanKey{o}, &operationSpan{span: span})
}

func (o *observer) End(ctx context.Context, operation workspaces.Operation, outcome workspaces.OperationOutcome) {
	started, ok := ctx.Value(spanKey{o}).(*operationSpan)
	if !ok || started.ended.Swap(true) {
		return
	}
	errorType := errorType(outcome)
	started.span.SetAttributes(endAttributes(operation, outcome, o.content)...)
	if errorType != "" {
		safe.Fail(started.span, errorType, outcome.Err, o.content)
	}
	started.span.End()
	o.metrics.record(ctx, operation, outcome, errorType)
	o.log(ctx, operation, outcome, errorType)
}

func spanName(kind workspaces.OperationKind) string {
	return "carrel." + string(kind)
}

// errorType is empty for what succeeded. A timeout is a result to the caller, and an error
// here.
func errorType(outcome workspaces.OperationOutcome) string {
	if outcome.Err == nil && outcome.Result.TimedOut {
		return safe.ErrorTimeout
	}
	return safe.ErrorType(outcome.Err)
}
