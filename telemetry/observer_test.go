package telemetry

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.uber.org/goleak"

	"github.com/carrel-dev/carrel/workspaces"
)

var update = flag.Bool("update", false, "write the golden files")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// recording is an observer and everything that it records.
type recording struct {
	workspaces.Observer
	spans   *tracetest.SpanRecorder
	metrics *sdkmetric.ManualReader
	logs    bytes.Buffer
}

func record(t *testing.T, opts ...Option) *recording {
	t.Helper()
	r := &recording{spans: tracetest.NewSpanRecorder(), metrics: sdkmetric.NewManualReader()}
	tracers := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(r.spans))
	meters := sdkmetric.NewMeterProvider(sdkmetric.WithReader(r.metrics))
	logger := slog.New(slog.NewTextHandler(&r.logs, &slog.HandlerOptions{
		Level: slog.LevelDebug,
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		},
	}))
	observer, err := New(append([]Option{WithTracerProvider(tracers), WithMeterProvider(meters), WithLogger(logger)}, opts...)...)
	require.NoError(t, err)
	r.Observer = observer
	return r
}

// run is one operation, with what happens below it.
func (r *recording) run(ctx context.Context, operation workspaces.Operation, outcome workspaces.OperationOutcome, below ...func(context.Context)) {
	ctx = r.Start(ctx, operation)
	for _, f := range below {
		f(ctx)
	}
	r.End(ctx, operation, outcome)
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(path, []byte(got), 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(want), got, "run go test -update after looking at the difference")
}

// render writes spans in the order of their start, children below their parent.
func render(spans []sdktrace.ReadOnlySpan) string {
	var b strings.Builder
	children := map[string][]sdktrace.ReadOnlySpan{}
	for _, span := range spans {
		parent := span.Parent().SpanID().String()
		children[parent] = append(children[parent], span)
	}
	var write func(parent, indent string)
	write = func(parent, indent string) {
		sort.SliceStable(children[parent], func(i, j int) bool {
			return children[parent][i].StartTime().Before(children[parent][j].StartTime())
		})
		for _, span := range children[parent] {
			fmt.Fprintf(&b, "%s%s", indent, span.Name())
			if status := span.Status(); status.Code != codes.Unset {
				fmt.Fprintf(&b, " [%s: %s]", status.Code, status.Description)
			}
			b.WriteString("\n")
			attrs := attribute.NewSet(span.Attributes()...)
			for _, attr := range attrs.ToSlice() {
				value, _ := json.Marshal(attr.Value.AsInterface())
				fmt.Fprintf(&b, "%s    %s = %s\n", indent, attr.Key, value)
			}
			write(span.SpanContext().SpanID().String(), indent+"  ")
		}
	}
	write("0000000000000000", "")
	return b.String()
}

var (
	dockerInfo = workspaces.Info{
		RunID: "run-1", Provider: "docker", Image: "buildpack-deps:bookworm",
		Repository: "https://github.com/octo/hello", Ref: "main",
		Commit:   "9d59409acf479dfa0df1aa568182e43e43df8bbe",
		Resource: map[string]string{"container.id": "4f66"},
	}
	podInfo = workspaces.Info{
		RunID: "run-1", Provider: "k8s", Image: "buildpack-deps:bookworm",
		Resource: map[string]string{"k8s.pod.name": "carrel-ws-a1", "k8s.namespace.name": "agents"},
	}
)

// everything drives the observer through each operation, as the manager does, with all there is to record.
func everything(r *recording) {
	op := func(kind workspaces.OperationKind) workspaces.Operation {
		return workspaces.Operation{Kind: kind, Provider: "docker", RunID: "run-1", Workspace: "ws1", Info: dockerInfo}
	}
	create := op(workspaces.OperationCreate)
	create.Workspace = ""
	create.Info = workspaces.Info{RunID: "run-1", Repository: dockerInfo.Repository, Ref: "main"}
	checkout := op(workspaces.OperationCheckout)
	checkout.Info.Commit = ""
	checkout.OnHost = true
	exec := func(args ...string) workspaces.Operation {
		o := op(workspaces.OperationExec)
		o.Command = workspaces.Command{
			Args: args, Dir: "sub", Env: map[string]string{"TOKEN": "env-SECRET"},
			Stdin: strings.NewReader("stdin-SECRET"),
		}
		return o
	}
	read, write := op(workspaces.OperationRead), op(workspaces.OperationWrite)
	read.Path, write.Path = "dir/missing-SECRET.txt", "dir/out-SECRET.txt"

	r.run(context.Background(), create, workspaces.OperationOutcome{
		Duration: 1500 * time.Millisecond, Provision: time.Second, Checkout: 400 * time.Millisecond,
		Workspace: "ws1", Info: dockerInfo, Live: 1,
	}, func(ctx context.Context) {
		r.run(ctx, checkout, workspaces.OperationOutcome{Duration: 400 * time.Millisecond, Info: dockerInfo}, func(ctx context.Context) {
			r.run(ctx, exec("git", "init"), workspaces.OperationOutcome{Duration: 20 * time.Millisecond})
		})
	})
	r.run(context.Background(), checkout, workspaces.OperationOutcome{
		Duration: 300 * time.Millisecond,
		Err: &workspaces.OpError{Op: "checkout", Workspace: "ws1", Err: &workspaces.CheckoutError{
			Step: "fetch", Repository: dockerInfo.Repository, Ref: "main", ExitCode: 128, Stderr: "stderr-SECRET",
		}},
	})
	r.run(context.Background(), exec("/usr/bin/bash", "-c", "cat args-SECRET"), workspaces.OperationOutcome{
		Duration: 30 * time.Millisecond,
		Result: workspaces.Result{
			ExitCode: 3, Stdout: "stdout-SECRET\n", Stderr: "stderr-SECRET\n", StdoutBytes: 14, StderrBytes: 14,
			Warm: true, OOMKilled: true, Duration: 30 * time.Millisecond,
		},
	})
	r.run(context.Background(), exec("sleep", "60"), workspaces.OperationOutcome{
		Duration: 2 * time.Second, Result: workspaces.Result{ExitCode: 124, TimedOut: true, Warm: true},
	})
	r.run(context.Background(), exec("make"), workspaces.OperationOutcome{
		Duration: time.Second,
		Err:      &workspaces.OpError{Op: "exec", Workspace: "ws1", Err: fmt.Errorf("%w: oom-killed", workspaces.ErrGone)},
		Result:   workspaces.Result{StdoutBytes: 7, Stdout: "so far\n"},
	})
	r.run(context.Background(), read, workspaces.OperationOutcome{
		Err: &workspaces.OpError{Op: "read", Workspace: "ws1", Err: &fs.PathError{Op: "open", Path: read.Path, Err: fs.ErrNotExist}},
	})
	r.run(context.Background(), write, workspaces.OperationOutcome{Bytes: 42})
	r.run(context.Background(), op(workspaces.OperationDispose), workspaces.OperationOutcome{Live: 0})
	r.run(context.Background(), workspaces.Operation{Kind: workspaces.OperationCollect, Provider: "docker"},
		workspaces.OperationOutcome{Collected: 2})

	pod := create
	pod.Provider = "k8s"
	r.run(context.Background(), pod, workspaces.OperationOutcome{
		Duration: time.Second, Workspace: "ws2", Info: podInfo, Reused: true, Live: 1,
	})
}

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

// proves O3: no arguments, paths, output or messages unless switched on; environment and stdin never.
func TestContentO3(t *testing.T) {
	t.Run("off", func(t *testing.T) {
		r := record(t)
		everything(r)
		all := render(r.spans.Ended()) + r.logs.String() + renderMetrics(t, r)
		require.NotContains(t, all, "SECRET")
	})
	t.Run("on", func(t *testing.T) {
		r := record(t, WithContent(true))
		everything(r)
		all := render(r.spans.Ended()) + r.logs.String()
		for _, part := range []string{"args-SECRET", "stdout-SECRET", "stderr-SECRET", "missing-SECRET", "out-SECRET"} {
			require.Contains(t, all, part)
		}
		require.NotContains(t, all+renderMetrics(t, r), "env-SECRET")
		require.NotContains(t, all, "stdin-SECRET")
		require.NotContains(t, renderMetrics(t, r), "SECRET", "metrics never hold content")
	})
}

// proves R1, O3: what the rules refuse is recorded nowhere, with content neither.
func TestRefusedRepositoryR1O3(t *testing.T) {
	for _, repository := range []string{
		"https://user:tok_SECRET@127.0.0.1:1/x.git", "https://tok_SECRET@github.com/a/b",
		"https://github.com/a/b?token=tok_SECRET", "tok_SECRET",
	} {
		r := record(t, WithContent(true))
		operation := workspaces.Operation{
			Kind: workspaces.OperationCreate, Provider: "local", RunID: "run-1",
			Info: workspaces.Info{Repository: repository, Ref: "--upload-pack=tok_SECRET"},
		}
		r.run(context.Background(), operation, workspaces.OperationOutcome{Err: workspaces.ErrInvalidInput, Info: operation.Info})
		require.NotContains(t, render(r.spans.Ended())+r.logs.String()+renderMetrics(t, r), "SECRET", repository)
	}
}

// proves O3: everything recorded is valid UTF-8 and bounded.
func TestBoundedO3(t *testing.T) {
	bad := strings.Repeat("a\xff中", 20_000)
	r := record(t, WithContent(true))
	info := workspaces.Info{
		RunID: bad, Provider: bad, Image: bad, Repository: "https://github.com/a/" + bad, Ref: bad, Commit: bad,
		Resource: map[string]string{bad: bad},
	}
	for i := range 100 {
		info.Resource[fmt.Sprint("key", i)] = bad
	}
	args := make([]string, 10_000)
	for i := range args {
		args[i] = "x"
	}
	for _, command := range [][]string{{bad, bad, bad}, args, make([]string, 10_000), nil} {
		for _, kind := range kinds() {
			operation := workspaces.Operation{
				Kind: kind, Provider: bad, RunID: bad, Workspace: bad, Info: info, Path: bad,
				Command: workspaces.Command{Args: command, Dir: bad},
			}
			outcome := workspaces.OperationOutcome{
				Err:  &workspaces.CheckoutError{Step: bad, Stderr: bad},
				Info: info, Workspace: bad, Result: workspaces.Result{Stdout: bad, Stderr: bad},
			}
			r.run(context.Background(), operation, outcome)
			outcome.Err = nil
			r.run(context.Background(), operation, outcome)
		}
	}
	for _, span := range r.spans.Ended() {
		total := len(span.Name()) + len(span.Status().Description)
		require.True(t, utf8.ValidString(span.Status().Description))
		for _, attr := range span.Attributes() {
			require.True(t, utf8.ValidString(string(attr.Key)))
			text := []string{attr.Value.Emit()}
			if attr.Value.Type() == attribute.STRINGSLICE {
				text = attr.Value.AsStringSlice()
			}
			total += len(attr.Key)
			for _, s := range text {
				require.True(t, utf8.ValidString(s), "%s", attr.Key)
				total += len(s)
			}
		}
		require.Less(t, total, 40_000, span.Name())
		require.Empty(t, span.Events())
	}
	require.True(t, utf8.ValidString(renderMetrics(t, r)))
}

func kinds() []workspaces.OperationKind {
	return []workspaces.OperationKind{
		workspaces.OperationCreate, workspaces.OperationCheckout, workspaces.OperationExec, workspaces.OperationRead,
		workspaces.OperationWrite, workspaces.OperationDispose, workspaces.OperationCollect,
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
