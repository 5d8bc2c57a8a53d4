package telemetry

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/carrel-dev/carrel/workspaces"
)

// proves O2, O3
func TestSpansO2O3(t *testing.T) {
	for name, opts := range map[string][]Option{
		"spans.golden":              nil,
		"spans_with_content.golden": {WithContent(true)},
	} {
		t.Run(name, func(t *testing.T) {
			r := record(t, opts...)
			everything(r)
			golden(t, name, render(r.spans.Ended()))
			require.Len(t, r.spans.Started(), len(r.spans.Ended()))
		})
	}
}

// proves O3, O4, C59: for every operation and every way to end, started = ended, the status is Error for what
// failed, and the failure is counted by its kind.
func TestOutcomesC59O3O4(t *testing.T) {
	op := func(err error) error { return &workspaces.OpError{Op: "exec", Workspace: "ws1", Err: err} }
	for _, kind := range kinds() {
		for name, c := range map[string]struct {
			outcome   workspaces.OperationOutcome
			errorType string
		}{
			"success":          {workspaces.OperationOutcome{}, ""},
			"validation error": {workspaces.OperationOutcome{Err: op(workspaces.ErrInvalidInput)}, "invalid_input"},
			"gone":             {workspaces.OperationOutcome{Err: op(workspaces.ErrGone)}, "gone"},
			"expired":          {workspaces.OperationOutcome{Err: op(workspaces.ErrExpired)}, "expired"},
			"disposed":         {workspaces.OperationOutcome{Err: op(workspaces.ErrDisposed)}, "disposed"},
			"unavailable":      {workspaces.OperationOutcome{Err: op(workspaces.ErrUnavailable)}, "unavailable"},
			"cancelled":        {workspaces.OperationOutcome{Err: op(context.Canceled)}, "cancelled"},
			"deadline":         {workspaces.OperationOutcome{Err: op(context.DeadlineExceeded)}, "deadline_exceeded"},
			"panic":            {workspaces.OperationOutcome{Err: op(errors.New("provider panicked: boom"))}, "_OTHER"},
			"checkout":         {workspaces.OperationOutcome{Err: &workspaces.CheckoutError{Step: "fetch"}}, "checkout"},
			"timeout":          {workspaces.OperationOutcome{Result: workspaces.Result{TimedOut: true, ExitCode: 124}}, "timeout"},
			"non-zero exit":    {workspaces.OperationOutcome{Result: workspaces.Result{ExitCode: 1}}, ""},
			"own exit 124":     {workspaces.OperationOutcome{Result: workspaces.Result{ExitCode: 124}}, ""},
			"out of memory":    {workspaces.OperationOutcome{Result: workspaces.Result{ExitCode: 137, OOMKilled: true}}, ""},
		} {
			t.Run(string(kind)+"/"+name, func(t *testing.T) {
				r := record(t)
				r.run(context.Background(), workspaces.Operation{Kind: kind, Provider: "local", RunID: "run-1"}, c.outcome)

				require.Len(t, r.spans.Started(), 1)
				require.Len(t, r.spans.Ended(), 1)
				span := r.spans.Ended()[0]
				attrs := attribute.NewSet(span.Attributes()...)
				got, _ := attrs.Value("error.type")
				assert.Equal(t, c.errorType, got.AsString())
				run, _ := attrs.Value("carrel.run.id")
				assert.Equal(t, "run-1", run.AsString())
				failures := fmt.Sprintf("carrel.failures{carrel.operation=%s,carrel.provider=local,error.type=%s} 1\n", kind, c.errorType)
				if c.errorType == "" {
					assert.Equal(t, codes.Unset, span.Status().Code)
					assert.NotContains(t, renderMetrics(t, r), "carrel.failures")
					assert.NotContains(t, r.logs.String(), "error_type")
				} else {
					assert.Equal(t, sdktrace.Status{Code: codes.Error, Description: c.errorType}, span.Status())
					assert.Contains(t, renderMetrics(t, r), failures)
					assert.Contains(t, r.logs.String(), "error_type="+c.errorType)
				}
			})
		}
	}
}

// proves O3, C59: a span ends once, whatever End is called with.
func TestEndOnceC59O3(t *testing.T) {
	r := record(t)
	operation := workspaces.Operation{Kind: workspaces.OperationExec, Provider: "local"}
	r.End(context.Background(), operation, workspaces.OperationOutcome{})
	require.Empty(t, r.spans.Started())

	other := record(t)
	ctx := r.Start(context.Background(), operation)
	inner := other.Start(ctx, operation)
	other.End(inner, operation, workspaces.OperationOutcome{})
	require.Empty(t, r.spans.Ended(), "an observer ends its own spans alone")

	var group sync.WaitGroup
	for range 8 {
		group.Go(func() { r.End(ctx, operation, workspaces.OperationOutcome{Err: workspaces.ErrGone}) })
	}
	group.Wait()
	require.Len(t, r.spans.Ended(), 1)
	require.Contains(t, renderMetrics(t, r), "carrel.failures{carrel.operation=exec,carrel.provider=local,error.type=gone} 1\n")
}

// proves O3: concurrent operations each get their own span.
func TestConcurrentO3(t *testing.T) {
	r := record(t)
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for range 20 {
				for _, kind := range kinds() {
					r.run(context.Background(), workspaces.Operation{Kind: kind, Provider: "local"}, workspaces.OperationOutcome{Err: workspaces.ErrGone})
				}
			}
		})
	}
	group.Wait()
	require.Len(t, r.spans.Ended(), 8*20*len(kinds()))
}

// proves O1: without an SDK, without options and with nil ones nothing is recorded and nothing breaks.
func TestNilProvidersO1C59(t *testing.T) {
	for name, opts := range map[string][]Option{
		"none": nil,
		"nil":  {nil, WithTracerProvider(nil), WithMeterProvider(nil), WithLogger(nil)},
	} {
		t.Run(name, func(t *testing.T) {
			observer, err := New(opts...)
			require.NoError(t, err)
			everything(&recording{Observer: observer})
		})
	}
}

type refusingMeters struct{ noop.MeterProvider }

func (refusingMeters) Meter(string, ...metric.MeterOption) metric.Meter { return refusingMeter{} }

type refusingMeter struct{ noop.Meter }

var errRefused = errors.New("refused")

func (refusingMeter) Int64Counter(string, ...metric.Int64CounterOption) (metric.Int64Counter, error) {
	return noop.Int64Counter{}, errRefused
}

func TestRefusedInstrumentO4(t *testing.T) {
	_, err := New(WithMeterProvider(refusingMeters{}))
	require.ErrorIs(t, err, errRefused)
}

// proves O4
func TestLogsO4(t *testing.T) {
	r := record(t)
	everything(r)
	golden(t, "logs.golden", r.logs.String())
}
