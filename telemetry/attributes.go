package telemetry

import (
	"errors"
	"path"
	"slices"

	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.40.0"

	"github.com/carrel-dev/carrel/telemetry/internal/safe"
	"github.com/carrel-dev/carrel/workspaces"
)

// Attributes that the semantic conventions have none for.
const (
	workspaceIDKey = attribute.Key("carrel.workspace.id")
	providerKey    = attribute.Key("carrel.provider")
	reusedKey      = attribute.Key("carrel.workspace.reused")
	collectedKey   = attribute.Key("carrel.workspace.collected")
	onHostKey      = attribute.Key("carrel.checkout.on_host")
	stepKey        = attribute.Key("carrel.checkout.step")
	timedOutKey    = attribute.Key("carrel.exec.timed_out")
	oomKilledKey   = attribute.Key("carrel.exec.oom_killed")
	stdoutBytesKey = attribute.Key("carrel.exec.stdout.bytes")
	stderrBytesKey = attribute.Key("carrel.exec.stderr.bytes")
	stdoutKey      = attribute.Key("carrel.exec.stdout")
	stderrKey      = attribute.Key("carrel.exec.stderr")
	sessionHitKey  = attribute.Key("carrel.session.hit")
	phaseKey       = attribute.Key("carrel.create.phase")
	operationKey   = attribute.Key("carrel.operation")
)

// resourceMaxKeys bounds how many of Info.Resource are recorded.
const resourceMaxKeys = 16

// startAttributes are known before the operation runs.
func startAttributes(operation workspaces.Operation, content bool) []attribute.KeyValue {
	attrs := []attribute.KeyValue{providerKey.String(safe.Text(operation.Provider))}
	if operation.RunID != "" {
		attrs = append(attrs, safe.RunID(operation.RunID))
	}
	attrs = appendText(attrs, workspaceIDKey, operation.Workspace)
	attrs = appendInfo(attrs, operation.Info)

	switch operation.Kind {
	case workspaces.OperationExec:
		attrs = appendCommand(attrs, operation.Command, content)
	case workspaces.OperationRead, workspaces.OperationWrite:
		if content {
			attrs = append(attrs, semconv.FilePath(safe.Content(operation.Path)))
		}
	case workspaces.OperationCheckout:
		attrs = append(attrs, onHostKey.Bool(operation.OnHost))
	}
	return attrs
}

// endAttributes are what the outcome adds.
func endAttributes(operation workspaces.Operation, outcome workspaces.OperationOutcome, content bool) []attribute.KeyValue {
	var attrs []attribute.KeyValue
	switch operation.Kind {
	case workspaces.OperationCreate:
		attrs = appendText(attrs, workspaceIDKey, outcome.Workspace)
		attrs = appendInfo(attrs, outcome.Info)
		attrs = append(attrs, reusedKey.Bool(outcome.Reused))
	case workspaces.OperationCheckout:
		attrs = appendInfo(attrs, outcome.Info)
		var failed *workspaces.CheckoutError
		if errors.As(outcome.Err, &failed) {
			attrs = append(attrs, stepKey.String(safe.Text(failed.Step)), semconv.ProcessExitCode(failed.ExitCode))
		}
	case workspaces.OperationExec:
		attrs = appendResult(attrs, outcome, content)
	case workspaces.OperationRead, workspaces.OperationWrite:
		if outcome.Err == nil {
			attrs = append(attrs, semconv.FileSize(outcome.Bytes))
		}
	case workspaces.OperationCollect:
		attrs = append(attrs, collectedKey.Int(outcome.Collected))
	}
	return attrs
}

func appendInfo(attrs []attribute.KeyValue, info workspaces.Info) []attribute.KeyValue {
	// An operation may also fail because repository or ref break the rules. Such a text is
	// never recorded: it may hold a credential.
	if info.Repository != "" {
		if normal, err := workspaces.NormalizeRepository(info.Repository, true); err == nil && normal == info.Repository {
			attrs = appendText(attrs, semconv.VCSRepositoryURLFullKey, info.Repository)
		}
	}
	if info.Ref != "" && workspaces.CheckRef(info.Ref) == nil {
		attrs = appendText(attrs, semconv.VCSRefHeadNameKey, info.Ref)
	}
	attrs = appendText(attrs, semconv.VCSRefHeadRevisionKey, info.Commit)
	attrs = appendText(attrs, semconv.ContainerImageNameKey, info.Image)

	names := make([]string, 0, len(info.Resource))
	for name := range info.Resource {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names[:min(len(names), resourceMaxKeys)] {
		attrs = appendText(attrs, attribute.Key(safe.Text(name)), info.Resource[name])
	}
	return attrs
}

func appendCommand(attrs []attribute.KeyValue, command workspaces.Command, content bool) []attribute.KeyValue {
	if len(command.Args) > 0 && command.Args[0] != "" {
		attrs = append(attrs, semconv.ProcessExecutableName(safe.Text(path.Base(command.Args[0]))))
	}
	if !content {
		return attrs
	}
	var args []string
	for left := safe.ContentMaxBytes; len(args) < len(command.Args) && left > 0; {
		arg := safe.Content(command.Args[len(args)])
		args, left = append(args, arg), left-max(1, len(arg))
	}
	attrs = append(attrs, semconv.ProcessCommandArgs(args...))
	return appendText(attrs, semconv.ProcessWorkingDirectoryKey, command.Dir)
}

func appendResult(attrs []attribute.KeyValue, outcome workspaces.OperationOutcome, content bool) []attribute.KeyValue {
	result := outcome.Result
	if outcome.Err == nil {
		attrs = append(attrs,
			semconv.ProcessExitCode(result.ExitCode),
			timedOutKey.Bool(result.TimedOut),
			oomKilledKey.Bool(result.OOMKilled),
			sessionHitKey.Bool(result.Warm))
	}
	attrs = append(attrs, stdoutBytesKey.Int64(result.StdoutBytes), stderrBytesKey.Int64(result.StderrBytes))
	if content {
		attrs = append(attrs, stdoutKey.String(safe.Content(result.Stdout)), stderrKey.String(safe.Content(result.Stderr)))
	}
	return attrs
}

func appendText(attrs []attribute.KeyValue, key attribute.Key, value string) []attribute.KeyValue {
	if value == "" {
		return attrs
	}
	return append(attrs, key.String(safe.Text(value)))
}
