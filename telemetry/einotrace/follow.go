package einotrace

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/cloudwego/eino/adk"
	"github.com/cloudwego/eino/callbacks"
	"github.com/cloudwego/eino/schema"
)

// followStream ends s when the producer of output ends. s is nil where nobody waits for
// that.
func (h *handler) followStream(ctx context.Context, s *scope, output *schema.StreamReader[callbacks.CallbackOutput]) {
	if output == nil {
		if s != nil {
			s.finish(outcome{attributes: runID(ctx)})
		}
		return
	}
	if s == nil || !s.follow() {
		output.Close()
		return
	}
	go func() {
		collected := h.collector(s)
		err := drain(output, collected.add)
		out := outcome{attributes: runID(ctx)}
		if err != nil {
			out = failed(ctx, err)
		}
		out.attributes = append(out.attributes, collected.attributes()...)
		s.finish(out)
	}()
}

// followEvents ends s when the agent ended: its last event, and the last of the streams in them.
func followEvents[M adk.MessageType](ctx context.Context, s *scope, events *adk.AsyncIterator[*adk.TypedAgentEvent[M]]) {
	ours := s != nil && s.follow()
	go func() {
		var interrupted bool
		var failure error
		for {
			event, ok := events.Next()
			if !ok {
				break
			}
			if event == nil {
				continue
			}
			if event.Action != nil && event.Action.Interrupted != nil {
				interrupted = true
			}
			if err := cmp.Or(event.Err, drainMessage(event)); failure == nil {
				failure = err
			}
		}
		if !ours {
			return
		}
		if failure != nil {
			s.finish(failed(ctx, failure))
			return
		}
		s.finish(outcome{interrupted: interrupted, attributes: runID(ctx)})
	}()
}

// drainMessage reads the stream in an event, the handler's own copy of it. It returns an error
// that the agent ended with: not one after which the model is asked again, and not the mark of a cancel, which has
// an event of its own.
func drainMessage[M adk.MessageType](event *adk.TypedAgentEvent[M]) error {
	if event.Output == nil || event.Output.MessageOutput == nil || event.Output.MessageOutput.MessageStream == nil {
		return nil
	}
	err := drain(event.Output.MessageOutput.MessageStream, func(M) {})
	var retried *adk.WillRetryError
	if errors.As(err, &retried) || errors.Is(err, adk.ErrStreamCanceled) {
		return nil
	}
	return err
}

// drain reads a stream to its end and closes it. Streams run functions of others, whose
// panics must not end the program from a goroutine of telemetry.
func drain[T any](stream *schema.StreamReader[T], each func(T)) (err error) {
	defer stream.Close()
	defer func() {
		if cause := recover(); cause != nil {
			err = fmt.Errorf("panic: %v", cause)
		}
	}()
	for {
		chunk, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if _, one := schema.GetSourceName(err); one {
			continue // one of several merged streams
		}
		if err != nil {
			return err
		}
		each(chunk)
	}
}
