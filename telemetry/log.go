package telemetry

import (
	"context"
	"log/slog"

	"github.com/carrel-dev/carrel/telemetry/internal/safe"
	"github.com/carrel-dev/carrel/workspaces"
)

func (o *observer) log(ctx context.Context, operation workspaces.Operation, outcome workspaces.OperationOutcome, errorType string) {
	if o.logger == nil {
		return
	}
	level := logLevel(operation, outcome, errorType)
	if !o.logger.Enabled(ctx, level) {
		return
	}
	attrs := []slog.Attr{
		slog.Duration("duration", outcome.Duration),
	}
	if errorType != "" {
		attrs = append(attrs, slog.String("error_type", errorType))
	}
	if o.content && outcome.Err != nil {
		attrs = append(attrs, slog.String("error", safe.Text(outcome.Err.Error())))
	}
	// What a span says: its later attributes are newer.
	values := startAttributes(operation, o.content)
	values = append(values, endAttributes(operation, outcome, o.content)...)
	last := make(map[string]int, len(values))
	for i, value := range values {
		last[string(value.Key)] = i
	}
	for i, value := range values {
		if last[string(value.Key)] == i {
			attrs = append(attrs, slog.Any(string(value.Key), value.Value.AsInterface()))
		}
	}
	o.logger.LogAttrs(ctx, level, spanName(operation.Kind), attrs...)
}

func logLevel(operation workspaces.Operation, outcome workspaces.OperationOutcome, errorType string) slog.Level {
	switch {
	case errorType == "cancelled":
		return slog.LevelInfo // somebody's wish
	case errorType != "":
		return slog.LevelWarn
	case operation.Kind == workspaces.OperationCreate,
		operation.Kind == workspaces.OperationDispose,
		operation.Kind == workspaces.OperationCollect && outcome.Collected > 0:
		return slog.LevelInfo
	default:
		return slog.LevelDebug
	}
}
