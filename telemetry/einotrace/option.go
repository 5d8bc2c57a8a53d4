package einotrace

import (
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/trace"
)

// ScopeName is the instrumentation scope name.
const ScopeName = "github.com/carrel-dev/carrel/telemetry/einotrace"

// An Option changes what New returns.
type Option func(*config)

type config struct {
	tracers      trace.TracerProvider
	nodes        bool
	content      bool
	sessionValue bool
}

func newConfig(opts []Option) config {
	c := config{tracers: otel.GetTracerProvider()}
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

// WithNodes says whether every other component gets a span too: lambdas, tools nodes,
// templates, retrievers, embeddings, loaders. The default is false.
func WithNodes(on bool) Option {
	return func(c *config) { c.nodes = on }
}

// WithContent says whether arguments and results of tools, messages to and from models, and the
// messages of errors are recorded, their beginnings at least. The default is false.
func WithContent(on bool) Option {
	return func(c *config) { c.content = on }
}

// WithSessionValue says whether the outermost ADK agent keeps its span context in the
// run's session, under SessionKey. Then the target of transfer_to_agent hangs below it, and a
// run that is resumed from a checkpoint is linked to the one before.
//
// The default is false, as it changes what Eino does: where a session has any value, an agent
// without a GenModelInput of its own formats its instruction as an FString template, and an
// instruction with braces in it fails.
func WithSessionValue(on bool) Option {
	return func(c *config) { c.sessionValue = on }
}
