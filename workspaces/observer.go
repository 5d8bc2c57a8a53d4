package workspaces

import (
	"context"
	"time"
)

// An Observer is told of everything the manager does: the one seam for
// telemetry. Every Start is followed by exactly one End with the context that Start
// returned, on every path. Both are called from many goroutines at once, must not block, call the
// manager or change what they are given.
type Observer interface {
	// Start returns the context in which the operation runs.
	Start(ctx context.Context, operation Operation) context.Context
	End(ctx context.Context, operation Operation, outcome OperationOutcome)
}

// An OperationKind is one of the things an Observer is told of.
type OperationKind string

// The kinds of operations.
const (
	// OperationCreate is everything until a workspace is ready; it contains
	// OperationCheckout and the commands of the checkout.
	OperationCreate   OperationKind = "create"
	OperationCheckout OperationKind = "checkout"
	OperationExec     OperationKind = "exec"
	OperationRead     OperationKind = "read"
	OperationWrite    OperationKind = "write"
	OperationDispose  OperationKind = "dispose"
	OperationCollect  OperationKind = "collect"
)

// An Operation is what is about to happen. It may hold what a model or a
// repository wrote: Command, Path and Repository.
type Operation struct {
	Kind      OperationKind
	Provider  string
	RunID     string // empty for OperationCollect
	Workspace string // its id; empty before there is one
	Info      Info   // zero before there is a workspace, but for RunID, Repository and Ref

	Command Command // OperationExec
	Path    string  // OperationRead, OperationWrite: relative to the root

	// OnHost: the checkout fetches on the host.
	OnHost bool
}

// An OperationOutcome is how an Operation ended.
type OperationOutcome struct {
	Err      error
	Duration time.Duration

	Result    Result // OperationExec; also with Err
	Bytes     int    // OperationRead, OperationWrite
	Workspace string // OperationCreate: the id
	Info      Info   // OperationCreate, OperationCheckout: what is known now
	Reused    bool   // OperationCreate: found, made by another process
	Collected int    // OperationCollect
	// Live is the number of workspaces the manager holds after the operation:
	// OperationCreate, OperationDispose, OperationCollect.
	Live int
	// Provision and Checkout are the phases of OperationCreate.
	Provision, Checkout time.Duration
}
