package einotrace

import (
	"context"

	"github.com/cloudwego/eino/adk"
	"github.com/cloudwego/eino/callbacks"
	"github.com/cloudwego/eino/components"
	"github.com/cloudwego/eino/compose"
	"github.com/cloudwego/eino/schema"
	semconv "go.opentelemetry.io/otel/semconv/v1.40.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/carrel-dev/carrel/workspaces"
)

// New returns a handler for compose.WithCallbacks, adk.WithCallbacks or
// callbacks.AppendGlobalHandlers. One handler serves any number of runs at the same time; installed
// twice in one run, it still makes one span of a call.
func New(opts ...Option) callbacks.Handler {
	c := newConfig(opts)
	return &handler{
		tracer:       c.tracers.Tracer(ScopeName, trace.WithSchemaURL(semconv.SchemaURL)),
		nodes:        c.nodes,
		content:      c.content,
		sessionValue: c.sessionValue,
	}
}

type handler struct {
	tracer       trace.Tracer
	nodes        bool
	content      bool
	sessionValue bool
}

var (
	_ callbacks.Handler       = (*handler)(nil)
	_ callbacks.TimingChecker = (*handler)(nil)
)

// scopeKey finds this handler's own scope in a context.
type scopeKey struct{ handler *handler }

func (h *handler) scope(ctx context.Context) *scope {
	s, _ := ctx.Value(scopeKey{h}).(*scope)
	return s
}

// own returns the scope of the component whose end is reported. It is nil for one whose
// start was not: the scope in ctx then is that of a caller.
func (h *handler) own(ctx context.Context, info *callbacks.RunInfo) *scope {
	if s := h.scope(ctx); s != nil && s.info == info {
		return s
	}
	return nil
}

// Needed saves Eino the copies of streams that nobody would look at.
func (h *handler) Needed(_ context.Context, info *callbacks.RunInfo, _ callbacks.CallbackTiming) bool {
	return h.traces(info)
}

func (h *handler) OnStart(ctx context.Context, info *callbacks.RunInfo, input callbacks.CallbackInput) context.Context {
	return h.start(ctx, info, input)
}

func (h *handler) OnStartWithStreamInput(ctx context.Context, info *callbacks.RunInfo, input *schema.StreamReader[callbacks.CallbackInput]) context.Context {
	if input != nil {
		input.Close()
	}
	return h.start(ctx, info, nil)
}

func (h *handler) start(ctx context.Context, info *callbacks.RunInfo, input callbacks.CallbackInput) context.Context {
	if !h.traces(info) {
		return ctx
	}
	parent := h.scope(ctx)
	if parent != nil && parent.info == info {
		return ctx // the handler is installed twice
	}

	if parent != nil && parent.hasEnded() && !isComposite(info.Component) {
		// Nobody would end its span if it panicked.
		return ctx
	}

	name, kind, attrs := describe(ctx, info)
	attrs = append(attrs, runID(ctx)...)
	resumed := isResumed(input)
	if resumed {
		attrs = append(attrs, resumedKey.Bool(true))
	}
	model := h.startModel(info, input)
	attrs = append(attrs, model.attributes()...)
	attrs = append(attrs, h.toolArguments(info, input)...)
	var links []trace.Link
	if parent == nil {
		ctx, links = h.outermost(ctx, isAgent(info.Component), resumed)
	}

	s := &scope{info: info, parent: parent, content: h.content}
	ctx, s.span = h.tracer.Start(ctx, model.spanName(name), trace.WithSpanKind(kind), trace.WithAttributes(attrs...), trace.WithLinks(links...))
	if parent == nil {
		h.toSession(ctx, isAgent(info.Component))
	} else if !parent.adopt(s) {
		s.parent = nil
		if !isComposite(info.Component) { // the parent ended just now
			s.finish(outcome{abandoned: true})
		}
	}
	if info.Component == components.ComponentOfTool {
		ctx = workspaces.ContextWithToolErrorReporter(ctx, s.reportToolError)
	}
	return context.WithValue(ctx, scopeKey{h}, s)
}

func (h *handler) OnEnd(ctx context.Context, info *callbacks.RunInfo, output callbacks.CallbackOutput) context.Context {
	s := h.own(ctx, info)
	switch output := output.(type) {
	case *adk.AgentCallbackOutput:
		if output != nil && output.Events != nil {
			followEvents(ctx, s, output.Events)
			return ctx
		}
	case *adk.TypedAgentCallbackOutput[*schema.AgenticMessage]:
		if output != nil && output.Events != nil {
			followEvents(ctx, s, output.Events)
			return ctx
		}
	}
	if s != nil {
		collected := h.collector(s)
		collected.add(output)
		s.finish(outcome{attributes: append(collected.attributes(), runID(ctx)...)})
	}
	return ctx
}

func (h *handler) OnEndWithStreamOutput(ctx context.Context, info *callbacks.RunInfo, output *schema.StreamReader[callbacks.CallbackOutput]) context.Context {
	h.followStream(ctx, h.own(ctx, info), output)
	return ctx
}

func (h *handler) OnError(ctx context.Context, info *callbacks.RunInfo, err error) context.Context {
	if s := h.own(ctx, info); s != nil {
		s.finish(failed(ctx, err))
	}
	return ctx
}

// failed is the outcome of a call that returned err: an interrupt is one of Eino's errors.
func failed(ctx context.Context, err error) outcome {
	_, graph := compose.ExtractInterruptInfo(err)
	_, rerun := compose.IsInterruptRerunError(err)
	return outcome{err: err, interrupted: graph || rerun, attributes: runID(ctx)}
}

func isResumed(input callbacks.CallbackInput) bool {
	switch input := input.(type) {
	case *adk.AgentCallbackInput:
		return input != nil && input.ResumeInfo != nil
	case *adk.TypedAgentCallbackInput[*schema.AgenticMessage]:
		return input != nil && input.ResumeInfo != nil
	}
	return false
}
