package workspaces

import "time"

const (
	// Root is the directory of a workspace as the model knows it, whatever a
	// provider maps it to.
	Root = "/workspace"

	// OutputMaxBytes caps each output stream of one command in its Result.
	OutputMaxBytes = 65_536

	// OutputHeadBytes bounds the part of a longer stream that is kept from its
	// beginning; the rest of OutputMaxBytes holds its end.
	OutputHeadBytes = 16_384

	// FileMaxBytes caps ReadFile and WriteFile.
	FileMaxBytes = 1_048_576

	// ExecTimeout bounds a command that names no timeout of its own.
	ExecTimeout = 5 * time.Minute

	// ExecTimeoutMax is the longest timeout a command may name.
	ExecTimeoutMax = 30 * time.Minute

	// KillAfter is what a command has between TERM and KILL once it timed out or
	// its call was cancelled.
	KillAfter = 5 * time.Second

	// GuardTime is how long after a command's timeout a call waits for the report
	// of its end before it returns as timed out all the same.
	GuardTime = 15 * time.Second

	// CancelReturn bounds how long a cancelled call may take to return.
	CancelReturn = time.Second

	// StopTime bounds the stop of a command whose call was cancelled.
	StopTime = 6 * time.Second

	// ProbeTimeout bounds the question whether the thing behind a workspace is
	// still there.
	ProbeTimeout = 5 * time.Second

	// Lifetime is how long a workspace lives when no limit says otherwise.
	Lifetime = 30 * time.Minute

	// MaxPerRun is how many workspaces one run may hold by default.
	MaxPerRun = 3

	// CollectInterval is the shortest time between two collections that Acquire
	// starts.
	CollectInterval = 10 * time.Minute

	// CloseTimeout bounds Manager.Close when its context has no deadline.
	CloseTimeout = 30 * time.Second

	// BeforeReleaseTimeout bounds Options.BeforeRelease.
	BeforeReleaseTimeout = 30 * time.Second

	// CleanupTimeout bounds the removal of what a failed or cancelled create left.
	CleanupTimeout = 30 * time.Second
)

const (
	// WorkspaceEnv names the variable that holds the workspace's directory as its
	// own commands see it.
	WorkspaceEnv = "WORKSPACE"

	// BaseRef is where a checkout keeps the commit it started from.
	BaseRef = "refs/carrel/base"
)
