package lifecycle

import (
	"context"
	"errors"
	"time"

	"github.com/cloudwego/eino/adk"
	"github.com/cloudwego/eino/callbacks"
	"github.com/cloudwego/eino/components"
	"github.com/cloudwego/eino/compose"
	"github.com/cloudwego/eino/schema"

	"github.com/carrel-dev/carrel/workspaces"
)

var (
	_ callbacks.Handler       = (*Hook)(nil)
	_ callbacks.TimingChecker = (*Hook)(nil)
)

// resumeWait is how long a resumed agent waits for the end of what it resumes.
const resumeWait = time.Second

// A component is one that takes part in an execution and is not inside another one.
type component struct {
	info      *callbacks.RunInfo
	execution *execution
	depth     int // of its address
}

// componentKey finds the component of one hook in a context.
type componentKey struct{ hook *Hook }

func (h *Hook) component(ctx context.Context) *component {
	c, _ := ctx.Value(componentKey{h}).(*component)
	return c
}

// own returns the component whose end is reported, or nil where that is inside one.
func (h *Hook) own(ctx context.Context, info *callbacks.RunInfo) *component {
	if c := h.component(ctx); c != nil && c.info == info {
		return c
	}
	return nil
}

func isAgent(c components.Component) bool {
	return c == adk.ComponentOfAgent || c == adk.ComponentOfAgenticAgent
}

// isComposite says whether a component can own a run.
func isComposite(c components.Component) bool {
	switch c {
	case compose.ComponentOfGraph, compose.ComponentOfChain, compose.ComponentOfWorkflow:
		return true
	}
	return isAgent(c)
}

func isTransfer(info *callbacks.RunInfo) bool {
	return info.Component == components.ComponentOfTool && info.Name == adk.TransferToAgentToolName
}

// Needed saves Eino the copies of streams and events that nobody would look at.
func (h *Hook) Needed(ctx context.Context, info *callbacks.RunInfo, timing callbacks.CallbackTiming) bool {
	switch {
	case info == nil:
		return false
	case timing == callbacks.TimingOnStart:
		return isComposite(info.Component) || isTransfer(info)
	case timing == callbacks.TimingOnStartWithStreamInput:
		return isComposite(info.Component) && workspaces.RunFromContext(ctx) == nil
	case timing == callbacks.TimingOnError:
		return isComposite(info.Component)
	default:
		return h.own(ctx, info) != nil || h.transfers(ctx)
	}
}

// OnStart opens the run of an outermost graph, chain, workflow or agent. The context it returns has the run's handle.
func (h *Hook) OnStart(ctx context.Context, info *callbacks.RunInfo, input callbacks.CallbackInput) context.Context {
	return h.start(ctx, info, isResumed(input))
}

// OnStartWithStreamInput is OnStart. It closes its copy of the input.
func (h *Hook) OnStartWithStreamInput(ctx context.Context, info *callbacks.RunInfo, input *schema.StreamReader[callbacks.CallbackInput]) context.Context {
	if input != nil {
		input.Close()
	}
	return h.start(ctx, info, false)
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

func (h *Hook) start(ctx context.Context, info *callbacks.RunInfo, resumed bool) context.Context {
	switch {
	case info == nil:
		return ctx
	case isTransfer(info):
		if c := h.component(ctx); c != nil {
			c.execution.transferring()
		}
		return ctx
	case !isComposite(info.Component), workspaces.RunFromContext(ctx) != nil:
		return ctx
	}
	e, err := h.enter(ctx, isAgent(info.Component), resumed)
	if err != nil {
		if n := nameOf(ctx); n != nil {
			n.refuse(err)
		}
		h.report(err)
		return workspaces.ContextWithRun(ctx, h.refused)
	}
	return context.WithValue(workspaces.ContextWithRun(ctx, e.run), componentKey{h}, &component{info, e, len(compose.GetCurrentAddress(ctx))})
}

// enter returns the execution that a component is part of: that of the agent which transferred to it, else
// a new one.
func (h *Hook) enter(ctx context.Context, agent, resumed bool) (*execution, error) {
	n := nameOf(ctx)
	if agent && belowAgent(ctx) {
		if e := h.source(ctx, n); e != nil {
			return e, nil
		}
	}
	id := ""
	if agent && (n == nil || !n.chosen) {
		id = sessionRunID(ctx)
	}
	if id == "" && n != nil {
		id = n.id
	}
	if id == "" {
		id = newRunID()
	}
	if resumed {
		// Its end and this start are reported from different goroutines. Were it to end last, interrupted, the run would
		// be kept when this one has completed.
		for _, earlier := range h.executionsOf(id) {
			if !waitFor(earlier.done, resumeWait) {
				break
			}
		}
	}
	e, err := h.open(ctx, id, n, agent)
	if err == nil && resumed && n == nil {
		adk.AddSessionValue(ctx, SessionKey, id) // for the agents below that were interrupted
	}
	return e, err
}

// source returns the execution in which an agent transfers to the one that starts with ctx, joined.
func (h *Hook) source(ctx context.Context, n *name) *execution {
	var candidates []*execution
	if n != nil {
		if e := n.last(); e != nil {
			candidates = append(candidates, e)
		}
	} else if id := sessionRunID(ctx); id != "" {
		candidates = h.executionsOf(id)
	}
	for _, e := range candidates {
		if e.hook == h && e.join() {
			return e
		}
	}
	return nil
}

// belowAgent says whether ctx is that of an agent below another one, by Eino's address.
func belowAgent(ctx context.Context) bool {
	agents := 0
	for _, segment := range compose.GetCurrentAddress(ctx) {
		if segment.Type == adk.AddressSegmentAgent {
			agents++
		}
	}
	return agents > 1
}

// remember keeps the run's id in the agent's session. Not where the caller chose it: from its first session
// value on, Eino takes an agent's instruction for a template.
//
// Eino writes a checkpoint of the session without its lock, and what an agent has called may go on meanwhile. So this is
// called only where the agent itself waits for the call.
func (h *Hook) remember(ctx context.Context) {
	c := h.component(ctx)
	if c == nil || !c.runsGraph(ctx) || c.execution.name != nil && c.execution.name.chosen {
		return
	}
	adk.AddSessionValue(ctx, SessionKey, c.execution.run.ID())
}

// runsGraph says whether ctx is that of the graph which an agent runs: c, or one below it that is in no node or
// tool of another.
func (c *component) runsGraph(ctx context.Context) bool {
	address := compose.GetCurrentAddress(ctx)
	if !c.execution.agent || len(address) <= c.depth {
		return false
	}
	for i, segment := range address[c.depth:] {
		last := c.depth+i == len(address)-1
		if last != (segment.Type == compose.AddressSegmentRunnable) || !last && segment.Type != adk.AddressSegmentAgent {
			return false
		}
	}
	return true
}

// transfers says whether ctx is that of the graph of an agent which transfers to another one, and only the session
// can name the run there: the other agent gets the context from before this one, and that has no name.
func (h *Hook) transfers(ctx context.Context) bool {
	c := h.component(ctx)
	return c != nil && c.execution.name == nil && c.execution.isTransferring() && c.runsGraph(ctx)
}

// OnEnd settles the run of an outermost component that completed, and waits up to ten seconds for the release. For an
// agent it is only the beginning: its run ends with its events, in the background.
func (h *Hook) OnEnd(ctx context.Context, info *callbacks.RunInfo, output callbacks.CallbackOutput) context.Context {
	if h.transfers(ctx) {
		h.remember(ctx)
	}
	c := h.own(ctx, info)
	switch output := output.(type) {
	case *adk.AgentCallbackOutput:
		if output != nil && output.Events != nil {
			followEvents(ctx, c, output.Events)
			return ctx
		}
	case *adk.TypedAgentCallbackOutput[*schema.AgenticMessage]:
		if output != nil && output.Events != nil {
			followEvents(ctx, c, output.Events)
			return ctx
		}
	}
	if c != nil {
		c.execution.leave(ctx, workspaces.Completed, false)
		c.execution.await()
	}
	return ctx
}

// OnEndWithStreamOutput settles the run when the producer of the stream ends, in the background.
func (h *Hook) OnEndWithStreamOutput(ctx context.Context, info *callbacks.RunInfo, output *schema.StreamReader[callbacks.CallbackOutput]) context.Context {
	if h.transfers(ctx) {
		h.remember(ctx)
	}
	followStream(ctx, h.own(ctx, info), output)
	return ctx
}

// OnError settles the run of an outermost component that failed, was cancelled or is interrupted, and waits up to
// ten seconds for the release.
func (h *Hook) OnError(ctx context.Context, info *callbacks.RunInfo, err error) context.Context {
	if isInterrupt(err) {
		h.remember(ctx)
	}
	if c := h.own(ctx, info); c != nil {
		c.execution.leave(ctx, outcomeOf(ctx, err), false)
		c.execution.await()
	}
	return ctx
}

func isInterrupt(err error) bool {
	if _, graph := compose.ExtractInterruptInfo(err); graph {
		return true
	}
	_, rerun := compose.IsInterruptRerunError(err)
	return rerun
}

// outcomeOf is how a component ended that returned err.
func outcomeOf(ctx context.Context, err error) workspaces.Outcome {
	var cancelled *adk.CancelError
	switch {
	case err == nil:
		return workspaces.Completed
	case isInterrupt(err):
		return workspaces.Interrupted
	case errors.As(err, &cancelled):
		return workspaces.Cancelled
	case ctx.Err() != nil && (errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)):
		return workspaces.Cancelled
	default:
		return workspaces.Failed
	}
}
