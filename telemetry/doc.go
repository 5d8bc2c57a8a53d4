// Package telemetry records what a workspaces.Manager does as OpenTelemetry spans and
// metrics, and as log records where a logger is given.
//
//	observer, err := telemetry.New()
//	...
//	manager, err := workspaces.NewManager(provider, workspaces.Options{Observer: observer})
//
// It uses OpenTelemetry's API alone: which SDK exports what it records, if any, is
// the program's business.
//
// # What it guarantees
//
// Every operation is one span, "carrel.exec" say, that ends once, and carries the run's id.
// Attributes follow the semantic conventions where those have one, and are called
// carrel.* elsewhere. A command that exits non-zero is no error; one that times out, a
// workspace that is gone and a checkout that fails are. error.type is one of a short list.
//
// Of what a model or a repository wrote, only the name of the executable, and repository
// and ref once they obey carrel's rules, are recorded: no arguments, no paths, no
// output, and no error messages, which may quote all of these. WithContent adds them, but for
// the environment and the input of commands, which are never recorded. All text is valid
// UTF-8 and bounded.
//
// The tables of all spans and metrics are testdata/spans.md and testdata/metrics.md.
//
// # What it does not
//
// It starts no goroutine and needs no shutdown. It makes no spans of the agent
// itself: package einotrace does, so that these hang below the tool that caused them.
package telemetry
