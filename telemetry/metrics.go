package telemetry

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	semconv "go.opentelemetry.io/otel/semconv/v1.40.0"

	"github.com/carrel-dev/carrel/telemetry/internal/safe"
	"github.com/carrel-dev/carrel/workspaces"
)

type metrics struct {
	exec      metric.Float64Histogram
	create    metric.Float64Histogram
	failures  metric.Int64Counter
	collected metric.Int64Counter
	sessions  metric.Int64Counter
	live      metric.Int64UpDownCounter

	mu       sync.Mutex
	lastLive int
}

func newMetrics(provider metric.MeterProvider) (*metrics, error) {
	meter := provider.Meter(ScopeName, metric.WithSchemaURL(semconv.SchemaURL))
	var m metrics
	var errs [6]error
	m.exec, errs[0] = meter.Float64Histogram("carrel.exec.duration",
		metric.WithUnit("s"),
		metric.WithDescription("How long callers waited for a command."),
		// A command through an open session takes milliseconds, the longest half an hour.
		metric.WithExplicitBucketBoundaries(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800))
	m.create, errs[1] = meter.Float64Histogram("carrel.create.duration",
		metric.WithUnit("s"),
		metric.WithDescription("How long it took until a workspace was ready, in all and by phase."),
		metric.WithExplicitBucketBoundaries(0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 30, 60, 120, 300))
	m.failures, errs[2] = meter.Int64Counter("carrel.failures",
		metric.WithUnit("{operation}"),
		metric.WithDescription("Operations that failed, commands that timed out included."))
	m.collected, errs[3] = meter.Int64Counter("carrel.workspace.collected",
		metric.WithUnit("{workspace}"),
		metric.WithDescription("Workspaces that collections removed."))
	m.sessions, errs[4] = meter.Int64Counter("carrel.session.lookups",
		metric.WithUnit("{command}"),
		metric.WithDescription("Commands, by whether a session that was opened beforehand took them."))
	m.live, errs[5] = meter.Int64UpDownCounter("carrel.workspace.live",
		metric.WithUnit("{workspace}"),
		metric.WithDescription("Workspaces that the process holds."))
	return &m, errors.Join(errs[:]...)
}

func (m *metrics) record(ctx context.Context, operation workspaces.Operation, outcome workspaces.OperationOutcome, errorType string) {
	attrs := []attribute.KeyValue{providerKey.String(safe.Text(operation.Provider))}
	if errorType != "" {
		attrs = append(attrs, semconv.ErrorTypeKey.String(errorType))
		m.failures.Add(ctx, 1, with(attrs, operationKey.String(string(operation.Kind))))
	}

	switch operation.Kind {
	case workspaces.OperationExec:
		if outcome.Err == nil {
			hit := sessionHitKey.Bool(outcome.Result.Warm)
			m.sessions.Add(ctx, 1, with(attrs[:1], hit))
			attrs = append(attrs, hit)
		}
		m.exec.Record(ctx, outcome.Duration.Seconds(), with(attrs))
	case workspaces.OperationCreate:
		attrs = append(attrs, reusedKey.Bool(outcome.Reused))
		m.create.Record(ctx, outcome.Duration.Seconds(), with(attrs, phaseKey.String("total")))
		m.recordPhase(ctx, outcome.Provision, attrs, "provision")
		m.recordPhase(ctx, outcome.Checkout, attrs, "checkout")
		m.recordLive(ctx, outcome.Live, attrs[:1])
	case workspaces.OperationDispose:
		m.recordLive(ctx, outcome.Live, attrs[:1])
	case workspaces.OperationCollect:
		if outcome.Collected > 0 {
			m.collected.Add(ctx, int64(outcome.Collected), with(attrs[:1]))
		}
		m.recordLive(ctx, outcome.Live, attrs[:1])
	}
}

// recordPhase leaves out a phase that a create did not reach.
func (m *metrics) recordPhase(ctx context.Context, duration time.Duration, attrs []attribute.KeyValue, phase string) {
	if duration > 0 {
		m.create.Record(ctx, duration.Seconds(), with(attrs, phaseKey.String(phase)))
	}
}

// recordLive adds the difference to what was last told: a sum over several managers, which
// a gauge could not give.
func (m *metrics) recordLive(ctx context.Context, live int, attrs []attribute.KeyValue) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if live != m.lastLive {
		m.live.Add(ctx, int64(live-m.lastLive), with(attrs))
		m.lastLive = live
	}
}

// with copies attrs: the slice is shared between several records.
func with(attrs []attribute.KeyValue, more ...attribute.KeyValue) metric.MeasurementOption {
	return metric.WithAttributeSet(attribute.NewSet(append(append([]attribute.KeyValue{}, attrs...), more...)...))
}
