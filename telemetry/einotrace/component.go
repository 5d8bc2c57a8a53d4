package einotrace

import (
	"context"
	"strings"

	"github.com/cloudwego/eino/adk"
	"github.com/cloudwego/eino/callbacks"
	"github.com/cloudwego/eino/components"
	"github.com/cloudwego/eino/compose"
	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.40.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/carrel-dev/carrel/telemetry/internal/safe"
	"github.com/carrel-dev/carrel/workspaces"
)

// Attributes that the semantic conventions have none for.
const (
	componentKey   = attribute.Key("carrel.eino.component")
	typeKey        = attribute.Key("carrel.eino.type")
	nameKey        = attribute.Key("carrel.eino.name")
	interruptedKey = attribute.Key("carrel.interrupted")
	resumedKey     = attribute.Key("carrel.resumed")
	toolErrorKey   = attribute.Key("carrel.tool.error_result")
)

func isAgent(component components.Component) bool {
	return component == adk.ComponentOfAgent || component == adk.ComponentOfAgenticAgent
}

func isModel(component components.Component) bool {
	return component == components.ComponentOfChatModel || component == components.ComponentOfAgenticModel
}

// isComposite says whether a component runs others and survives their panics.
func isComposite(component components.Component) bool {
	switch component {
	case compose.ComponentOfGraph, compose.ComponentOfChain, compose.ComponentOfWorkflow:
		return true
	}
	return isAgent(component)
}

// traces says whether a component gets a span.
func (h *handler) traces(info *callbacks.RunInfo) bool {
	if info == nil {
		return false
	}
	return h.nodes || isComposite(info.Component) || isModel(info.Component) || info.Component == components.ComponentOfTool
}

// describe returns the name, kind and first attributes of a component's span, as the semantic conventions
// for generative AI have them.
func describe(ctx context.Context, info *callbacks.RunInfo) (string, trace.SpanKind, []attribute.KeyValue) {
	name := safe.Text(info.Name)
	attrs := []attribute.KeyValue{componentKey.String(safe.Text(string(info.Component)))}
	if info.Type != "" {
		attrs = append(attrs, typeKey.String(safe.Text(info.Type)))
	}
	if name != "" {
		attrs = append(attrs, nameKey.String(name))
	}

	switch {
	case isAgent(info.Component):
		attrs = append(attrs, semconv.GenAIOperationNameInvokeAgent, semconv.GenAIAgentName(name))
		return spanName("invoke_agent", name), trace.SpanKindInternal, attrs
	case isModel(info.Component):
		attrs = append(attrs, semconv.GenAIOperationNameChat, semconv.GenAIProviderNameKey.String(provider(info.Type)))
		return "chat", trace.SpanKindClient, attrs
	case info.Component == components.ComponentOfTool:
		attrs = append(attrs, semconv.GenAIOperationNameExecuteTool, semconv.GenAIToolName(name), semconv.GenAIToolType("function"))
		if id := compose.GetToolCallID(ctx); id != "" {
			attrs = append(attrs, semconv.GenAIToolCallID(safe.Text(id)))
		}
		return spanName("execute_tool", name), trace.SpanKindInternal, attrs
	default:
		return spanName(strings.ToLower(safe.Text(string(info.Component))), name), trace.SpanKindInternal, attrs
	}
}

func spanName(operation, name string) string {
	if name == "" {
		return operation
	}
	return operation + " " + name
}

// provider returns the conventions' name of who serves a model, for the type of its Eino component.
func provider(einoType string) string {
	switch einoType {
	case "":
		return "unknown"
	case "OpenAI":
		return semconv.GenAIProviderNameOpenAI.Value.AsString()
	case "Claude":
		return semconv.GenAIProviderNameAnthropic.Value.AsString()
	case "Gemini":
		return semconv.GenAIProviderNameGCPGemini.Value.AsString()
	case "DeepSeek":
		return semconv.GenAIProviderNameDeepseek.Value.AsString()
	default:
		return strings.ToLower(safe.Text(einoType))
	}
}

// runID returns the attribute of the run that ctx carries, if any.
func runID(ctx context.Context) []attribute.KeyValue {
	run := workspaces.RunFromContext(ctx)
	if run == nil {
		return nil
	}
	return []attribute.KeyValue{safe.RunID(run.ID())}
}
