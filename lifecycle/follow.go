package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/cloudwego/eino/adk"
	"github.com/cloudwego/eino/callbacks"
	"github.com/cloudwego/eino/schema"

	"github.com/carrel-dev/carrel/workspaces"
)

// followStream ends a component when the producer of its output ends. c is nil where nobody waits for that.
func followStream(ctx context.Context, c *component, output *schema.StreamReader[callbacks.CallbackOutput]) {
	switch {
	case c == nil && output != nil:
		output.Close()
	case c != nil && output == nil:
		c.execution.leave(ctx, workspaces.Completed, false)
	case c != nil:
		go func() { c.execution.leave(ctx, outcomeOf(ctx, drain(output)), false) }()
	}
}

// followEvents ends a component when its agent ended: its last event, and the last of the streams in them.
func followEvents[M adk.MessageType](ctx context.Context, c *component, events *adk.AsyncIterator[*adk.TypedAgentEvent[M]]) {
	go func() {
		var seen ending
		for {
			event, ok := events.Next()
			if !ok {
				break
			}
			if event != nil {
				// The streams of a nested component are read as well: it is our copy.
				observe(&seen, c, event)
			}
		}
		if c != nil {
			c.execution.leave(ctx, seen.outcome(ctx), seen.transferred)
		}
	}()
}

// An ending is what an agent's events say of its end.
type ending struct {
	failure     error // an event's
	broken      error // the last message's
	interrupted bool
	transferred bool
}

func observe[M adk.MessageType](seen *ending, c *component, event *adk.TypedAgentEvent[M]) {
	if seen.failure == nil {
		seen.failure = event.Err
	}
	if event.Action != nil && event.Action.Interrupted != nil {
		seen.interrupted = true
	}
	if c != nil && event.AgentName == c.info.Name {
		// Eino transfers when an agent's last event says so, not one of an agent inside it.
		seen.transferred = event.Action != nil && event.Action.TransferToAgent != nil
	}
	if event.Output != nil && event.Output.MessageOutput != nil {
		// A message after a broken one shows that the agent went on.
		seen.broken = nil
		if stream := event.Output.MessageOutput.MessageStream; stream != nil {
			seen.broken = drain(stream)
		}
	}
}

func (e ending) outcome(ctx context.Context) workspaces.Outcome {
	var cancelled *adk.CancelError
	var retried *adk.WillRetryError
	switch {
	case e.interrupted, errors.As(e.failure, &cancelled):
		// A cancel can be resumed like an interrupt; Events tells them apart.
		return workspaces.Interrupted
	case e.failure != nil:
		return outcomeOf(ctx, e.failure)
	case errors.As(e.broken, &retried), errors.Is(e.broken, adk.ErrStreamCanceled):
		return workspaces.Completed // what follows those has an event of its own
	default:
		return outcomeOf(ctx, e.broken)
	}
}

// drain reads a stream to its end and closes it. Streams run functions of others, which may panic.
func drain[T any](stream *schema.StreamReader[T]) (err error) {
	defer stream.Close()
	defer func() {
		if cause := recover(); cause != nil {
			err = fmt.Errorf("panic: %v", cause)
		}
	}()
	for {
		_, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if _, one := schema.GetSourceName(err); one {
			continue // one of several merged streams
		}
		if err != nil {
			return err
		}
	}
}
