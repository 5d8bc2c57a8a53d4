package telemetry

import (
	"log/slog"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
)

// ScopeName is the instrumentation scope name.
const ScopeName = "github.com/carrel-dev/carrel/telemetry"

// An Option changes what New returns.
type Option func(*config)

type config struct {
	tracers trace.TracerProvider
	meters  metric.MeterProvider
	logger  *slog.Logger
	content bool
}

func newConfig(opts []Option) config {
	c := config{tracers: otel.GetTracerProvider(), meters: otel.GetMeterProvider()}
	for _, opt := range opts {
		if opt != nil {
			opt(&c)
		}
	}
	return c
}

// WithTracerProvider sets where spans go. Without it, or with nil, it is the global
// provider.
func WithTracerProvider(provider trace.TracerProvider) Option {
	return func(c *config) {
		if provider != nil {
			c.tracers = provider
		}
	}
}

// WithMeterProvider sets where metrics go. Without it, or with nil, it is the global
// provider.
func WithMeterProvider(provider metric.MeterProvider) Option {
	return func(c *config) {
		if provider != nil {
			c.meters = provider
		}
	}
}

// WithLogger makes one record of every operation when it ended: failures at level Warn; creates,
// disposals and collections that removed something at Info; all else at Debug. Records are
// written before the operation returns, with its context. Without it, or with nil,
// nothing is logged.
func WithLogger(logger *slog.Logger) Option {
	return func(c *config) { c.logger = logger }
}

// WithContent says whether content is recorded: arguments and directories of commands, the
// beginning of their output, paths of files, and the messages of errors. The
// default is false. It never includes the environment and the input of a command, nor the
// content of files.
func WithContent(on bool) Option {
	return func(c *config) { c.content = on }
}
