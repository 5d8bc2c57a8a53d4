package safe

import (
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	semconv "go.opentelemetry.io/otel/semconv/v1.40.0"
	"go.opentelemetry.io/otel/trace"
)

// RunID is the attribute of a run's id. All spans of a run have it.
func RunID(id string) attribute.KeyValue {
	return attribute.String("carrel.run.id", Text(id))
}

// Fail gives a span the status Error and the kind of the failure. The status text is the message of
// err only with content, and where there is one.
func Fail(span trace.Span, errorType string, err error, content bool) {
	status := errorType
	if content && err != nil {
		status = Text(err.Error())
	}
	span.SetAttributes(semconv.ErrorTypeKey.String(errorType))
	span.SetStatus(codes.Error, status)
}
