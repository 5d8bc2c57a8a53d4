package main

import (
	"context"
	"errors"
	"io"
	"strings"

	"github.com/cloudwego/eino/callbacks"
	"github.com/cloudwego/eino/components/tool"
	"github.com/cloudwego/eino/schema"
	helpers "github.com/cloudwego/eino/utils/callbacks"
)

// toolCallbacks calls start and end around every tool call, streamed or not.
func toolCallbacks(start func(ctx context.Context, name, arguments string) context.Context, end func(ctx context.Context, name, result string)) callbacks.Handler {
	return helpers.NewHandlerHelper().Tool(&helpers.ToolCallbackHandler{
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
