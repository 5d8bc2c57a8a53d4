package einotrace

import (
	"context"
	"errors"

	"github.com/cloudwego/eino/adk"
	"github.com/cloudwego/eino/compose"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// SessionKey is the session value that WithSessionValue uses. It holds a Traceparent.
const SessionKey = "carrel.traceparent"

const traceparentHeader = "traceparent"

// Traceparent returns the span context of ctx as a string to keep, in the form of W3C's Trace Context: of
// the caller's own span around a run, or of the component that a tool or node runs in. It
// is empty without a span.
func Traceparent(ctx context.Context) string {
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	return carrier[traceparentHeader]
}

// ParseTraceparent returns the span context that Traceparent made text of.
func ParseTraceparent(text string) (trace.SpanContext, error) {
	carrier := propagation.MapCarrier{traceparentHeader: text}
	previous := trace.SpanContextFromContext(propagation.TraceContext{}.Extract(context.Background(), carrier))
	if !previous.IsValid() {
		return trace.SpanContext{}, errors.New("not a traceparent")
	}
	return previous, nil
}

type linkKey struct{}

// LinkTo returns a context in which the outermost agent, graph, chain, workflow or other component has
// a link to previous: a span of the run that this one resumes. An invalid previous
// is no link. A caller with a span of its own around the run can as well link that.
func LinkTo(ctx context.Context, previous trace.SpanContext) context.Context {
	if !previous.IsValid() {
		return ctx
	}
	return context.WithValue(ctx, linkKey{}, previous)
}

// outermost returns the context and the links of a span that has none of ours above it in
// its context.
func (h *handler) outermost(ctx context.Context, isAgent, resumed bool) (context.Context, []trace.Link) {
	session, inSession := h.fromSession(ctx, isAgent)
	if isAgent && transferred(ctx) {
		if inSession {
			ctx = trace.ContextWithRemoteSpanContext(ctx, session)
		}
		return ctx, nil
	}
	var links []trace.Link
	if previous, ok := ctx.Value(linkKey{}).(trace.SpanContext); ok {
		links = append(links, trace.Link{SpanContext: previous})
	} else if inSession && resumed {
		links = append(links, trace.Link{SpanContext: session})
	}
	return ctx, links
}

func (h *handler) fromSession(ctx context.Context, isAgent bool) (trace.SpanContext, bool) {
	if !h.sessionValue || !isAgent {
		return trace.SpanContext{}, false
	}
	value, _ := adk.GetSessionValue(ctx, SessionKey)
	text, _ := value.(string)
	previous, err := ParseTraceparent(text)
	return previous, err == nil
}

// toSession keeps the span of ctx for those that are transferred to, and for a resume.
func (h *handler) toSession(ctx context.Context, isAgent bool) {
	if h.sessionValue && isAgent && !transferred(ctx) {
		adk.AddSessionValue(ctx, SessionKey, Traceparent(ctx))
	}
}

// transferred says whether ctx belongs to an agent that runs below another one by address.
func transferred(ctx context.Context) bool {
	agents := 0
	for _, segment := range compose.GetCurrentAddress(ctx) {
		if segment.Type == adk.AddressSegmentAgent {
			agents++
		}
	}
	return agents > 1
}
