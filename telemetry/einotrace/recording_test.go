package einotrace_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/cloudwego/eino/callbacks"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/goleak"

	"github.com/carrel-dev/carrel/telemetry"
	"github.com/carrel-dev/carrel/telemetry/einotrace"
	"github.com/carrel-dev/carrel/workspaces"
)

var update = flag.Bool("update", false, "write the golden files")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// recording is a handler and an observer, and the spans of both.
type recording struct {
	handler  callbacks.Handler
	observer workspaces.Observer
	tracers  *countingTracers
	spans    *tracetest.SpanRecorder
}

func record(t *testing.T, opts ...einotrace.Option) *recording {
	t.Helper()
	r := &recording{spans: tracetest.NewSpanRecorder()}
	r.tracers = &countingTracers{TracerProvider: sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(r.spans))}
	t.Cleanup(func() { r.tracers.requireOneEndEach(t) })
	r.handler = einotrace.New(append([]einotrace.Option{einotrace.WithTracerProvider(r.tracers)}, opts...)...)
	observer, err := telemetry.New(telemetry.WithTracerProvider(r.tracers))
	require.NoError(t, err)
	r.observer = observer
	return r
}

// carrel is an operation as a manager reports it, with a provider that may panic.
func (r *recording) carrel(ctx context.Context, result workspaces.Result, err error) {
	operation := workspaces.Operation{
		Kind: workspaces.OperationExec, Provider: "fake", RunID: "run-1", Workspace: "ws1",
		Command: workspaces.Command{Args: []string{"bash", "-c", "args-SECRET"}},
	}
	ctx = r.observer.Start(ctx, operation)
	r.observer.End(ctx, operation, workspaces.OperationOutcome{Err: err, Result: result})
}

// settle waits until every span that was started has ended: handlers follow streams in
// goroutines of their own.
func (r *recording) settle(t *testing.T) []sdktrace.ReadOnlySpan {
	t.Helper()
	require.Eventually(t, func() bool { return len(r.spans.Ended()) >= len(r.spans.Started()) }, 30*time.Second, time.Millisecond,
		"a span stays open")
	require.Len(t, r.spans.Ended(), len(r.spans.Started()))
	r.tracers.requireOneEndEach(t)
	return r.spans.Ended()
}

func (r *recording) find(t *testing.T, name string) sdktrace.ReadOnlySpan {
	t.Helper()
	var names []string
	for _, span := range r.spans.Ended() {
		if span.Name() == name {
			return span
		}
		names = append(names, span.Name())
	}
	require.Failf(t, "no such span", "%q is not in %q", name, names)
	return nil
}

func value(span sdktrace.ReadOnlySpan, key attribute.Key) string {
	set := attribute.NewSet(span.Attributes()...)
	v, _ := set.Value(key)
	return v.Emit()
}

// render writes the tree in the order of starts. Of trees without an order, a parallel node's say, the text sorts.
func render(spans []sdktrace.ReadOnlySpan, sorted bool) string {
	children := map[trace.SpanID][]sdktrace.ReadOnlySpan{}
	known := map[trace.SpanID]bool{}
	for _, span := range spans {
		known[span.SpanContext().SpanID()] = true
	}
	for _, span := range spans {
		parent := span.Parent().SpanID()
		if !known[parent] {
			parent = trace.SpanID{}
		}
		children[parent] = append(children[parent], span)
	}
	var write func(parent trace.SpanID, indent string) string
	write = func(parent trace.SpanID, indent string) string {
		sort.SliceStable(children[parent], func(i, j int) bool {
			return children[parent][i].StartTime().Before(children[parent][j].StartTime())
		})
		var blocks []string
		for _, span := range children[parent] {
			var b strings.Builder
			fmt.Fprintf(&b, "%s%s", indent, span.Name())
			if span.SpanKind() != trace.SpanKindInternal {
				fmt.Fprintf(&b, " (%s)", span.SpanKind())
			}
			if status := span.Status(); status.Code != codes.Unset {
				fmt.Fprintf(&b, " [%s: %s]", status.Code, status.Description)
			}
			for range span.Links() {
				b.WriteString(" +link")
			}
			b.WriteString("\n")
			attrs := attribute.NewSet(span.Attributes()...)
			for _, attr := range attrs.ToSlice() {
				if strings.HasPrefix(span.Name(), "carrel.") && attr.Key != "carrel.run.id" && attr.Key != "error.type" {
					continue // telemetry's own tests have them
				}
				value, _ := json.Marshal(attr.Value.AsInterface())
				fmt.Fprintf(&b, "%s    %s = %s\n", indent, attr.Key, value)
			}
			b.WriteString(write(span.SpanContext().SpanID(), indent+"  "))
			blocks = append(blocks, b.String())
		}
		if sorted {
			slices.Sort(blocks)
		}
		return strings.Join(blocks, "")
	}
	return write(trace.SpanID{}, "")
}

// outline is the tree of names alone.
func outline(spans []sdktrace.ReadOnlySpan) string {
	var lines []string
	for _, line := range strings.Split(render(spans, true), "\n") {
		if !strings.Contains(line, " = ") {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "\n")
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
