package einotrace

import (
	"cmp"
	"encoding/json"
	"strings"

	"github.com/cloudwego/eino/callbacks"
	"github.com/cloudwego/eino/components"
	"github.com/cloudwego/eino/components/model"
	"github.com/cloudwego/eino/components/tool"
	"github.com/cloudwego/eino/schema"
	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.40.0"

	"github.com/carrel-dev/carrel/telemetry/internal/safe"
)

// messagesMax is how many messages of a request are recorded: the last ones.
const messagesMax = 16

// A modelCall is what is known of a model's call when it starts.
type modelCall struct {
	name     string
	messages []*schema.Message // only with content
}

func (h *handler) startModel(info *callbacks.RunInfo, input callbacks.CallbackInput) modelCall {
	var call modelCall
	if !isModel(info.Component) {
		return call
	}
	if in := model.ConvCallbackInput(input); in != nil {
		if in.Config != nil {
			call.name = in.Config.Model
		}
		if h.content {
			call.messages = in.Messages
		}
	} else if in := model.ConvAgenticCallbackInput(input); in != nil && in.Config != nil {
		call.name = in.Config.Model
	}
	return call
}

func (c modelCall) spanName(name string) string { return spanName(name, safe.Text(c.name)) }

func (c modelCall) attributes() []attribute.KeyValue {
	var attrs []attribute.KeyValue
	if c.name != "" {
		attrs = append(attrs, semconv.GenAIRequestModel(safe.Text(c.name)))
	}
	if len(c.messages) > 0 {
		last := c.messages[max(0, len(c.messages)-messagesMax):]
		attrs = append(attrs, semconv.GenAIInputMessagesKey.String(messagesJSON(last)))
	}
	return attrs
}

func (h *handler) toolArguments(info *callbacks.RunInfo, input callbacks.CallbackInput) []attribute.KeyValue {
	if !h.content || info.Component != components.ComponentOfTool {
		return nil
	}
	in := tool.ConvCallbackInput(input)
	if in == nil {
		return nil
	}
	return []attribute.KeyValue{semconv.GenAIToolCallArgumentsKey.String(safe.Content(in.ArgumentsInJSON))}
}

// A collector gathers what the output of a call says, whole or in chunks.
type collector struct {
	component components.Component
	span      interface{ SetName(string) }
	content   bool

	name         string
	usage        *model.TokenUsage
	finishReason string
	text         strings.Builder
	toolCalls    []schema.ToolCall
}

func (h *handler) collector(s *scope) *collector {
	return &collector{component: s.info.Component, span: s.span, content: h.content}
}

func (c *collector) add(output callbacks.CallbackOutput) {
	switch {
	case isModel(c.component):
		c.addModel(output)
	case c.component == components.ComponentOfTool && c.content:
		if out := tool.ConvCallbackOutput(output); out != nil {
			c.addText(out.Response)
			if out.ToolOutput != nil {
				for _, part := range out.ToolOutput.Parts {
					c.addText(part.Text)
				}
			}
		}
	}
}

func (c *collector) addModel(output callbacks.CallbackOutput) {
	if out := model.ConvCallbackOutput(output); out != nil {
		if out.Config != nil {
			c.name = out.Config.Model
		}
		c.addUsage(out.TokenUsage)
		if out.Message != nil {
			c.addMessage(out.Message, out.TokenUsage == nil)
		}
		return
	}
	out := model.ConvAgenticCallbackOutput(output)
	if out == nil {
		return
	}
	if out.Config != nil {
		c.name = out.Config.Model
	}
	c.addUsage(out.TokenUsage)
	if meta := agenticMeta(out.Message); meta != nil && out.TokenUsage == nil {
		c.addMessageUsage(meta.TokenUsage)
	}
}

func agenticMeta(message *schema.AgenticMessage) *schema.AgenticResponseMeta {
	if message == nil {
		return nil
	}
	return message.ResponseMeta
}

func (c *collector) addMessage(message *schema.Message, withUsage bool) {
	if message.ResponseMeta != nil {
		if reason := message.ResponseMeta.FinishReason; reason != "" {
			c.finishReason = reason
		}
		if withUsage {
			c.addMessageUsage(message.ResponseMeta.Usage)
		}
	}
	if c.content {
		c.addText(message.Content)
		for _, call := range message.ToolCalls {
			c.addToolCall(call)
		}
	}
}

// addToolCall joins the pieces of a streamed call, which share an index.
func (c *collector) addToolCall(call schema.ToolCall) {
	if call.Index != nil {
		for i := range c.toolCalls {
			known := &c.toolCalls[i]
			if known.Index == nil || *known.Index != *call.Index {
				continue
			}
			known.ID = cmp.Or(known.ID, call.ID)
			known.Function.Name = cmp.Or(known.Function.Name, call.Function.Name)
			if len(known.Function.Arguments) <= safe.ContentMaxBytes {
				known.Function.Arguments += call.Function.Arguments
			}
			return
		}
	}
	if len(c.toolCalls) < messagesMax {
		c.toolCalls = append(c.toolCalls, call)
	}
}

func (c *collector) addMessageUsage(usage *schema.TokenUsage) {
	if usage == nil {
		return
	}
	c.addUsage(&model.TokenUsage{
		PromptTokens:       usage.PromptTokens,
		CompletionTokens:   usage.CompletionTokens,
		PromptTokenDetails: model.PromptTokenDetails{CachedTokens: usage.PromptTokenDetails.CachedTokens},
	})
}

// addUsage keeps the largest numbers: chunks repeat or add up what they know so far.
func (c *collector) addUsage(usage *model.TokenUsage) {
	if usage == nil {
		return
	}
	if c.usage == nil {
		c.usage = &model.TokenUsage{}
	}
	c.usage.PromptTokens = max(c.usage.PromptTokens, usage.PromptTokens)
	c.usage.CompletionTokens = max(c.usage.CompletionTokens, usage.CompletionTokens)
	c.usage.PromptTokenDetails.CachedTokens = max(c.usage.PromptTokenDetails.CachedTokens, usage.PromptTokenDetails.CachedTokens)
}

func (c *collector) addText(text string) {
	if left := safe.ContentMaxBytes + 1 - c.text.Len(); left > 0 {
		c.text.WriteString(text[:min(len(text), left)])
	}
}

func (c *collector) attributes() []attribute.KeyValue {
	var attrs []attribute.KeyValue
	if c.name != "" {
		c.span.SetName(spanName("chat", safe.Text(c.name)))
		attrs = append(attrs, semconv.GenAIRequestModel(safe.Text(c.name)))
	}
	if c.usage != nil {
		attrs = append(attrs, semconv.GenAIUsageInputTokens(c.usage.PromptTokens), semconv.GenAIUsageOutputTokens(c.usage.CompletionTokens))
		if cached := c.usage.PromptTokenDetails.CachedTokens; cached > 0 {
			attrs = append(attrs, semconv.GenAIUsageCacheReadInputTokens(cached))
		}
	}
	if c.finishReason != "" {
		attrs = append(attrs, semconv.GenAIResponseFinishReasons(safe.Text(c.finishReason)))
	}
	if !c.content {
		return attrs
	}
	switch {
	case isModel(c.component):
		message := &schema.Message{Role: schema.Assistant, Content: c.text.String(), ToolCalls: c.toolCalls}
		attrs = append(attrs, semconv.GenAIOutputMessagesKey.String(messagesJSON([]*schema.Message{message})))
	case c.component == components.ComponentOfTool:
		attrs = append(attrs, semconv.GenAIToolCallResultKey.String(safe.Content(c.text.String())))
	}
	return attrs
}

// messagePart and messageJSON are the conventions' form of messages in an attribute.
type messagePart struct {
	Type      string `json:"type"`
	Content   string `json:"content,omitempty"`
	ID        string `json:"id,omitempty"`
	Name      string `json:"name,omitempty"`
	Arguments string `json:"arguments,omitempty"`
}

type messageJSON struct {
	Role  string        `json:"role"`
	Parts []messagePart `json:"parts"`
}

// messagesJSON stops when it is as long as content may be: cut in the middle, it would be no JSON.
func messagesJSON(messages []*schema.Message) string {
	out := make([]messageJSON, 0, len(messages))
	left := safe.ContentMaxBytes
	for _, message := range messages {
		if message == nil {
			continue
		}
		m := messageJSON{Role: safe.Text(string(message.Role)), Parts: []messagePart{}}
		for _, part := range messageParts(message) {
			if left <= 0 {
				break
			}
			left -= len(part.Content) + len(part.ID) + len(part.Name) + len(part.Arguments)
			m.Parts = append(m.Parts, part)
		}
		out = append(out, m)
	}
	text, err := json.Marshal(out)
	if err != nil {
		return "[]" // strings always marshal
	}
	return string(text)
}

func messageParts(message *schema.Message) []messagePart {
	var parts []messagePart
	switch {
	case message.Role == schema.Tool:
		parts = append(parts, messagePart{Type: "tool_call_response", ID: safe.Text(message.ToolCallID), Content: safe.Content(message.Content)})
	case message.Content != "":
		parts = append(parts, messagePart{Type: "text", Content: safe.Content(message.Content)})
	}
	for _, call := range message.ToolCalls[:min(len(message.ToolCalls), messagesMax)] {
		parts = append(parts, messagePart{
			Type: "tool_call", ID: safe.Text(call.ID),
			Name: safe.Text(call.Function.Name), Arguments: safe.Content(call.Function.Arguments),
		})
	}
	return parts
}
