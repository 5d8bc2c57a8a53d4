package lifecycle

import (
	"context"
	"errors"
	"fmt"

	"github.com/cloudwego/eino/adk"

	"github.com/carrel-dev/carrel/workspaces"
)

// An EventsOption changes what Events does.
type EventsOption interface{ apply(*eventsConfig) }

type eventsConfig struct{ keep bool }

type eventsOption func(*eventsConfig)

func (o eventsOption) apply(c *eventsConfig) { o(c) }

// KeepOnCancel has the run keep its workspaces when the agent is cancelled by adk.WithCancel, as it does for an interrupt:
// for a run that is resumed from the cancel's checkpoint, and for the turns of an adk.TurnLoop. Its running
// commands are stopped.
func KeepOnCancel() EventsOption {
	return eventsOption(func(c *eventsConfig) { c.keep = true })
}

// Events passes on the events of a run, and ends when the run is released: after its workspaces were disposed,
// or its commands stopped where it is interrupted. It waits for that for at most forty seconds. An agent that is cancelled by
// adk.WithCancel looks interrupted to a handler; here the run is released as cancelled, before the
// adk.CancelError is passed on.
//
//	ctx = lifecycle.WithRunID(ctx, "")
//	events := lifecycle.Events(ctx, runner.Query(ctx, query, adk.WithCallbacks(hook)))
//
// ctx is the very context that the run was started with, prepared by [WithRunID]. Call Events before anything else is
// started with it: of two that were, it does not know which is meant, and only passes on. So it does
// in a run that the caller has opened, with [workspaces.ContextWithRun]. Without either, or when no hook has opened the run,
// the first event is an error that says so.
//
// iter belongs to Events from then on. Whoever stops reading early holds nothing up.
func Events[M adk.MessageType](ctx context.Context, iter *adk.AsyncIterator[*adk.TypedAgentEvent[M]], options ...EventsOption) *adk.AsyncIterator[*adk.TypedAgentEvent[M]] {
	var config eventsConfig
	for _, o := range options {
		if o != nil {
			o.apply(&config)
		}
	}
	out, generator := adk.NewAsyncIteratorPair[*adk.TypedAgentEvent[M]]()
	e, err := executionOf(ctx)
	if err != nil {
		generator.Send(&adk.TypedAgentEvent[M]{Err: err})
	}
	go func() {
		defer generator.Close()
		for {
			event, ok := iter.Next()
			if !ok {
				break
			}
			var cancelled *adk.CancelError
			if event != nil && errors.As(event.Err, &cancelled) {
				e.conclude(ctx, true, config.keep)
			}
			generator.Send(event)
		}
		e.conclude(ctx, false, false)
	}()
	return out
}

// executionOf returns what was started last with ctx. It is nil in a run of the caller.
func executionOf(ctx context.Context) (*execution, error) {
	if workspaces.RunFromContext(ctx) != nil {
		return nil, nil
	}
	n := nameOf(ctx)
	if n == nil {
		return nil, fmt.Errorf("%w: lifecycle.Events needs the context that the run was started with, from lifecycle.WithRunID", workspaces.ErrInvalidInput)
	}
	return n.claim()
}

// conclude waits for the release of an execution whose events have ended, or that was cancelled. e may be nil.
func (e *execution) conclude(ctx context.Context, cancelled, keep bool) {
	if e == nil {
		return
	}
	done := (<-chan struct{})(e.done)
	switch {
	case cancelled && keep:
		e.end(ctx, workspaces.Interrupted)
	case cancelled:
		done = e.cancel(ctx)
	}
	waitFor(done, workspaces.BeforeReleaseTimeout+patience)
}
