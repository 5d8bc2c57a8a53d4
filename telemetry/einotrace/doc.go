// Package einotrace makes OpenTelemetry spans of Eino's own components: agents, graphs,
// chains, workflows, models and tools, and other nodes on request.
//
//	handler := einotrace.New()
//	runner.Query(ctx, "fix the test", adk.WithCallbacks(handler))     // an ADK agent
//	graph.Invoke(ctx, input, compose.WithCallbacks(handler))          // a graph
//
// A component's span is in the context that the component runs with. So what it calls, and carrel's
// operations with package telemetry, hang below it.
//
// # What it guarantees
//
// A span ends once: when the component returned, when the producer of its stream ended, when the agent's last event
// and the streams in it did. What never reports its end, because it panicked or still
// runs when the graph around it is over, ends with that graph, as an error of the kind "abandoned".
// The handler closes its copies of streams, blocks nothing, and takes callbacks without a partner.
//
// Attributes follow the semantic conventions for generative AI. An interrupt is
// no error: carrel.interrupted says so. A tool that answers the model with an error, which is a
// result to Eino, is one, where the tool says so with workspaces.ReportToolError, as
// carrel's do. No message, argument or result is recorded, and no error text, unless
// WithContent is on; all text is valid UTF-8 and bounded.
//
// # Resumed runs
//
// A run that is resumed is another trace, which can be linked to the first: keep
// Traceparent(ctx) of any span of the first, a string, with the checkpoint, and give what ParseTraceparent
// makes of it to LinkTo. WithSessionValue does both for ADK agents.
//
// # What it does not
//
// Eino runs the target of transfer_to_agent with the context from before the first agent. Its span
// therefore is a sibling of the first agent's, below the span that the caller has around the run, and
// a trace of its own where the caller has none; WithSessionValue puts it below the first agent.
//
// A handler does not see that the reader of a stream closed it: the span ends when the producer
// does, after that of its caller perhaps. Until then the handler reads its copy, so that a producer which nothing
// but the close of its stream would stop goes on. What begins after its caller ended has no span, but for agents and
// graphs. A component that is called outside of any graph or agent and panics leaves its span open.
package einotrace
