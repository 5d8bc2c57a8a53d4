package telemetry

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
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

func kinds() []workspaces.OperationKind {
	return []workspaces.OperationKind{
		workspaces.OperationCreate, workspaces.OperationCheckout, workspaces.OperationExec, workspaces.OperationRead,
		workspaces.OperationWrite, workspaces.OperationDispose, workspaces.OperationCollect,
	}
}
