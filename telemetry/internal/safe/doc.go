// Package safe makes values that may be recorded: text that is valid UTF-8 and bounded, and
// the kind of an error instead of its message, which may quote what a model or a
// repository wrote.
package safe
