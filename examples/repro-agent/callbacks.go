package main

import (
	"context"
	"errors"
	"io"
	"strings"

	"github.com/cloudwego/eino/callbacks"
	"github.com/cloudwego/eino/components/model"
	"github.com/cloudwego/eino/components/tool"
	"github.com/cloudwego/eino/schema"
	helpers "github.com/cloudwego/eino/utils/callbacks"
)

// stepCallbacks calls said with every message of the model, and start and end around every tool call, streamed or not.
func stepCallbacks(said func(message *schema.Message), start func(ctx context.Context, name, arguments string) context.Context, end func(ctx context.Context, name, result string)) callbacks.Handler {
	return helpers.NewHandlerHelper().ChatModel(&helpers.ModelCallbackHandler{
		OnEnd: func(ctx context.Context, _ *callbacks.RunInfo, output *model.CallbackOutput) context.Context {
			said(output.Message)
			return ctx
		},
		OnEndWithStreamOutput: func(ctx context.Context, _ *callbacks.RunInfo, output *schema.StreamReader[*model.CallbackOutput]) context.Context {
			// Read here and not in the background: what the model says is printed before the tools it calls.
			defer output.Close()
			var chunks []*schema.Message
			for {
				chunk, err := output.Recv()
				if err != nil {
					break // the end, or a failure that the run reports
				}
				chunks = append(chunks, chunk.Message)
			}
			if message, err := schema.ConcatMessages(chunks); err == nil {
				said(message)
			}
			return ctx
		},
	}).Tool(&helpers.ToolCallbackHandler{
		OnStart: func(ctx context.Context, info *callbacks.RunInfo, input *tool.CallbackInput) context.Context {
			return start(ctx, info.Name, input.ArgumentsInJSON)
		},
		OnEnd: func(ctx context.Context, info *callbacks.RunInfo, output *tool.CallbackOutput) context.Context {
			end(ctx, info.Name, output.Response)
			return ctx
		},
		OnEndWithStreamOutput: func(ctx context.Context, info *callbacks.RunInfo, output *schema.StreamReader[*tool.CallbackOutput]) context.Context {
			go func() {
				defer output.Close()
				var whole strings.Builder
				for {
					chunk, err := output.Recv()
					if err != nil {
						if !errors.Is(err, io.EOF) {
							whole.WriteString("failed: " + err.Error())
						}
						end(ctx, info.Name, whole.String())
						return
					}
					whole.WriteString(chunk.Response)
				}
			}()
			return ctx
		},
		OnError: func(ctx context.Context, info *callbacks.RunInfo, err error) context.Context {
			end(ctx, info.Name, "failed: "+err.Error())
			return ctx
		},
	}).Handler()
}
