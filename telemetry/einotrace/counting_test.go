package einotrace_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/trace"
)

// countingTracers counts how often each span is ended: the SDK takes no notice of a second time.
type countingTracers struct {
	trace.TracerProvider

	mu    sync.Mutex
	spans []*countingSpan
}

func (c *countingTracers) Tracer(name string, opts ...trace.TracerOption) trace.Tracer {
	return &countingTracer{c.TracerProvider.Tracer(name, opts...), c}
}

func (c *countingTracers) requireOneEndEach(t *testing.T) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, span := range c.spans {
		require.Equal(t, int64(1), span.ends.Load(), "ends of %q", span.name)
	}
}

type countingTracer struct {
	trace.Tracer
	all *countingTracers
}

func (c *countingTracer) Start(ctx context.Context, name string, opts ...trace.SpanStartOption) (context.Context, trace.Span) {
	ctx, span := c.Tracer.Start(ctx, name, opts...)
	counted := &countingSpan{Span: span, name: name}
	c.all.mu.Lock()
	defer c.all.mu.Unlock()
	c.all.spans = append(c.all.spans, counted)
	return trace.ContextWithSpan(ctx, counted), counted
}

type countingSpan struct {
	trace.Span
	name string
	ends atomic.Int64
}

func (c *countingSpan) End(opts ...trace.SpanEndOption) {
	c.ends.Add(1)
	c.Span.End(opts...)
}
