package einotrace_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/cloudwego/eino/adk"
	"github.com/cloudwego/eino/callbacks"
	"github.com/cloudwego/eino/components"
	"github.com/cloudwego/eino/components/model"
	"github.com/cloudwego/eino/compose"
	"github.com/cloudwego/eino/schema"
	"github.com/stretchr/testify/require"

	"github.com/carrel-dev/carrel/telemetry/einotrace"
	"github.com/carrel-dev/carrel/workspaces"
)

// proves O3: content is recorded when it is switched on, bounded and valid.
func TestContentO3(t *testing.T) {
	long := strings.Repeat("中\xff", 50_000)
	big := &funcTool{"big", func(ctx context.Context, _ string) (string, error) {
		workspaces.ReportToolError(ctx, errors.New(long))
		return long, nil
	}}
	drive := func(r *recording) {
		run := loop(t, script(calls(call("c1", "bash", `{"command":"args-SECRET"}`)), calls(call("c2", "big", long)), answer("answer-SECRET")), bash(r), big)
		_, err := invoke(context.Background(), run, true, "question-SECRET", compose.WithCallbacks(r.handler))
		require.NoError(t, err)
		r.settle(t)
	}
	off, on := record(t), record(t, einotrace.WithContent(true))
	drive(off)
	drive(on)
	require.NotContains(t, render(off.spans.Ended(), false), "SECRET")
	text := render(on.spans.Ended(), false)
	for _, part := range []string{"args-SECRET", "result-SECRET", "question-SECRET", "answer-SECRET"} {
		require.Contains(t, text, part)
	}
	for _, span := range on.spans.Ended() {
		require.True(t, utf8.ValidString(span.Status().Description))
		require.LessOrEqual(t, len(span.Status().Description), 256)
		require.Empty(t, span.Events())
		for _, attr := range span.Attributes() {
			require.True(t, utf8.ValidString(attr.Value.Emit()), "%s", attr.Key)
			require.Less(t, len(attr.Value.Emit()), 30_000, "%s", attr.Key)
		}
	}
}

// proves O3: names that others choose are bounded and valid too.
func TestBoundedO3(t *testing.T) {
	r := record(t, einotrace.WithNodes(true))
	bad := strings.Repeat("a\xff中", 20_000)
	for _, component := range []components.Component{
		adk.ComponentOfAgent, compose.ComponentOfGraph, compose.ComponentOfLambda, components.ComponentOfChatModel, components.ComponentOfTool,
		components.Component(bad),
	} {
		info := &callbacks.RunInfo{Name: bad, Type: bad, Component: component}
		ctx := r.handler.OnStart(context.Background(), info, &model.CallbackInput{Config: &model.Config{Model: bad}})
		r.handler.OnEnd(ctx, info, &model.CallbackOutput{Config: &model.Config{Model: bad}, Message: &schema.Message{
			ResponseMeta: &schema.ResponseMeta{FinishReason: bad},
		}})
	}
	for _, span := range r.settle(t) {
		require.True(t, utf8.ValidString(span.Name()))
		require.Less(t, len(span.Name()), 600)
		for _, attr := range span.Attributes() {
			require.True(t, utf8.ValidString(attr.Value.Emit()))
			require.Less(t, len(attr.Value.Emit()), 300)
		}
	}
}
