package workspaces

import (
	"context"
	"time"
)

// A Provider makes workspaces on one kind of infrastructure. Its methods are safe for
// concurrent use. What only some can do is an interface of its own: Finder, Collector,
// HostSharer. The manager looks for them with As.
type Provider interface {
	// Name is short and constant: "local", "docker", "k8s".
	Name() string

	// Create makes an empty workspace, ready for commands. It is all or nothing: when it
	// fails, or ctx ends, nothing stays; that clean-up has a context of its own,
	// bounded by CleanupTimeout. An option the provider was explicitly given and cannot
	// enforce is ErrUnsupported.
	//
	// A provider that is a Finder derives the name of what it makes from
	// options.Name; where that exists already and lives, made by another process, it
	// returns it, with Attached true.
	Create(ctx context.Context, options CreateOptions) (Created, error)
}

// Created is a workspace and how it came.
type Created struct {
	Workspace Workspace

	// Attached: it was there before, made by another process for the same run and
	// repository, and may hold a checkout already.
	Attached bool
}

// CreateOptions is what the manager asks of a provider. All of it is valid.
type CreateOptions struct {
	// Name is derived from deployment, run and repository: the same in every process
	// of the deployment. 24 lower-case hexadecimal digits.
	Name string

	RunID      string
	Deployment string

	// Repository (in normal form) and Ref are to be recorded where the provider keeps
	// such notes; the checkout is the manager's. Commit is set where it is known
	// already.
	Repository, Ref, Commit string

	// RepositoryKey stands for the repository in a label: at most 63 characters of
	// [a-z0-9].
	RepositoryKey string

	// Image: empty is the provider's own.
	Image string

	// Env is the manager's and the call's; it wins over the provider's own.
	Env map[string]string

	// Limits are the manager's and the call's: what is set was explicitly given and
	// wins over the provider's own.
	Limits Limits
}

// A Finder is a Provider whose workspaces outlive the process that made them.
type Finder interface {
	// Find returns the living workspaces of one run, made by any process of
	// the deployment. Info is complete but for Commit, which may be empty.
	Find(ctx context.Context, deployment, runID string) ([]Workspace, error)
}

// A Collector is a Provider that can remove what processes left behind.
type Collector interface {
	// Collect removes the deployment's expired workspaces, those whose container or pod
	// has ended, and those of runs that are settled. It never touches
	// what lacks the provider's labels, belongs to another deployment or has an
	// unreadable expiry. One that cannot be removed does not end the pass. It returns
	// how many went, and one error with the count of those that did not.
	Collect(ctx context.Context, options CollectOptions) (int, error)
}

// CollectOptions is what the manager asks of a Collector.
type CollectOptions struct {
	Deployment string
	Now        time.Time

	// Settled says whether a run has settled; never nil. Only Settled removes.
	Settled func(ctx context.Context, runID string) Settlement
}

// A Settlement says what is known of a run.
type Settlement int

// The settlements, and what a collection does with the workspaces of such a run.
const (
	SettlementUnknown Settlement = iota // keeps
	RunLive                             // keeps
	RunSettled                          // removes
)

// A HostSharer is a Provider whose commands run on the host, as its user: they see its
// files, and what is in our memory may be within their reach.
type HostSharer interface {
	SharesHost() bool
}

// As finds the first value of type T in v and in what v wraps: a provider or workspace that
// wraps another has a method Unwrap() Provider or Unwrap() Workspace. It finds
// optional interfaces (Prober, Finder, HostDir) as well as a provider's own types.
func As[T any](v any) (T, bool) {
	for v != nil {
		if t, ok := v.(T); ok {
			return t, true
		}
		switch w := v.(type) {
		case interface{ Unwrap() Workspace }:
			v = w.Unwrap()
		case interface{ Unwrap() Provider }:
			v = w.Unwrap()
		default:
			v = nil
		}
	}
	var none T
	return none, false
}
