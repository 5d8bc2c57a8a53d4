package main

import (
	"context"

	"github.com/cloudwego/eino/callbacks"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/carrel-dev/carrel/telemetry"
	"github.com/carrel-dev/carrel/telemetry/einotrace"
	"github.com/carrel-dev/carrel/workspaces"
)

// startTracing sends spans to an OTLP endpoint. Without one there is nobody to observe.
func startTracing(ctx context.Context, endpoint string) (shutdown func(context.Context) error, observer workspaces.Observer, tracer callbacks.Handler, err error) {
	if endpoint == "" {
		return func(context.Context) error { return nil }, nil, nil, nil
	}
	exporter, err := otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(endpoint))
	if err != nil {
		return nil, nil, nil, err
	}
	provider := sdktrace.NewTracerProvider(
		sdktrace.WithBatcher(exporter),
		sdktrace.WithResource(resource.NewSchemaless(attribute.String("service.name", "repro-agent"))),
	)
	observer, err = telemetry.New(telemetry.WithTracerProvider(provider))
	if err != nil {
		return nil, nil, nil, err
	}
	return provider.Shutdown, observer, einotrace.New(einotrace.WithTracerProvider(provider)), nil
}
