package contracttest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/carrel-dev/carrel/workspaces"
)

// A Capability is something that some providers can do and others cannot.
type Capability string

// The capabilities. Of those that come with an interface, or a function in Config, neither may
// be there without the other.
const (
	// Finds: the provider is a workspaces.Finder; workspaces outlive the process that made them. Two
	// providers that Config.New makes see the same workspaces.
	Finds Capability = "find"
	// Collects: the provider is a workspaces.Collector.
	Collects Capability = "collect"
	// SharesHost: the provider is a workspaces.HostSharer that says true.
	SharesHost Capability = "shares host"
	// HostDir: its workspaces are workspaces.HostDir.
	HostDir Capability = "host directory"
	// Probes: its workspaces are workspaces.Prober; needs Config.Remove.
	Probes Capability = "probe"
	// WritesAt: its workspaces are workspaces.LinkWriter.
	WritesAt Capability = "write at"

	// Sandbox: commands end with the thing behind the workspace when that is removed. Needs Probes.
	Sandbox Capability = "sandbox"
	// EndsAtExpiry: the workspace's processes end at its expiry without us. Needs Probes, by which that
	// is noticed.
	EndsAtExpiry Capability = "ends at expiry"
	// Pauses: a workspace can be made to answer nothing any more; needs Config.Pause.
	Pauses Capability = "pause"

	// LimitsCPU, LimitsMemory, LimitsStorage and LimitsPIDs: such a limit can be enforced. With
	// LimitsMemory, a command that ran out of it is reported as such.
	LimitsCPU     Capability = "cpu limit"
	LimitsMemory  Capability = "memory limit"
	LimitsStorage Capability = "storage limit"
	LimitsPIDs    Capability = "pids limit"

	// Images: a workspace is made from an image.
	Images Capability = "images"

	// FileRepositories: a file: repository of this host can be checked out.
	FileRepositories Capability = "file repositories"
)

func capabilities() []Capability {
	return []Capability{
		Finds, Collects, SharesHost, HostDir, Probes, WritesAt, Sandbox, EndsAtExpiry, Pauses,
		LimitsCPU, LimitsMemory, LimitsStorage, LimitsPIDs, Images, FileRepositories,
	}
}

// patience is Config.Patience when that is zero.
const patience = 10 * time.Second

// Config is what Run has to know of a provider.
type Config struct {
	// New returns a new provider for one case, which holds nothing yet. It is called from several
	// goroutines. The provider lives until t's clean-up; t is not a *testing.T, but what
	// fails in it fails the case.
	New func(t testing.TB) workspaces.Provider

	// Capabilities are what the provider can do.
	Capabilities []Capability

	// Leftovers returns a line for everything that exists of a deployment: workspaces
	// and what belongs to them, processes too where they can be seen from here. provider is one that New made.
	Leftovers func(ctx context.Context, provider workspaces.Provider, deployment string) ([]string, error)

	// Remove removes the thing behind a workspace without the provider's knowledge. The workspace is as
	// the manager hands it out: workspaces.As finds the provider's own type.
	Remove func(ctx context.Context, workspace workspaces.Workspace) error

	// Pause makes a workspace answer nothing until resume is called; what New's t cleans up may
	// resume it as well.
	Pause func(ctx context.Context, workspace workspaces.Workspace) (resume func() error, err error)

	// Manager, when set, changes the options of a case's managers before the case does. Deployment and
	// OnError are the case's.
	Manager func(options *workspaces.Options)

	// Patience is how long what must happen at once, or within a second or so, may take before a case
	// fails. Zero: 10 s, which is for a busy machine. A call without such a rule gets six times as
	// long, a case eighteen times.
	Patience time.Duration
}

func (c Config) can(capability Capability) bool { return slices.Contains(c.Capabilities, capability) }

// missing returns what a case needs and the provider does not declare.
func (c Config) missing(needs []Capability) []Capability {
	return slices.DeleteFunc(slices.Clone(needs), c.can)
}

// filled returns the config with defaults in place, or what is wrong with it.
func (c Config) filled() (Config, error) {
	if c.New == nil || c.Leftovers == nil {
		return c, errors.New("contracttest: Config needs New and Leftovers")
	}
	for i, capability := range c.Capabilities {
		if !slices.Contains(capabilities(), capability) || slices.Contains(c.Capabilities[:i], capability) {
			return c, fmt.Errorf("contracttest: capability %q is unknown, or there twice", capability)
		}
	}
	if (c.Remove != nil) != c.can(Probes) || (c.Pause != nil) != c.can(Pauses) {
		return c, errors.New("contracttest: Remove belongs to Probes and Pause to Pauses, neither goes without the other")
	}
	if (c.can(Sandbox) || c.can(EndsAtExpiry)) && !c.can(Probes) {
		return c, errors.New("contracttest: Sandbox and EndsAtExpiry need Probes")
	}
	if c.Patience <= 0 {
		c.Patience = patience
	}
	return c, nil
}
