package workspaces

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"time"
)

// Options configure a Manager. The zero value of each field is a working default.
type Options struct {
	// Deployment is the name under which several processes share what they
	// create. Empty: "default". IsSettled needs it set.
	Deployment string

	// Image, Env and Limits are for every workspace. They win over the provider's own.
	Image  string
	Env    map[string]string
	Limits Limits

	// AllowFileRepositories accepts file:///absolute/path, for development and tests.
	AllowFileRepositories bool

	// AllowRepo, when set, is asked for every repository, in normal form. An error
	// refuses it; its text is shown to the model. Nil: every repository may be checked
	// out inside a workspace.
	AllowRepo func(ctx context.Context, runID, url string) error

	// AllowImage is asked for every image a call names. Nil: a call may not name one.
	AllowImage func(ctx context.Context, runID, image string) error

	// HostFetch, when set, makes the manager fetch repositories on the host and stream
	// them in. It needs AllowRepo.
	HostFetch *HostFetch

	// MaxPerRun is how many workspaces one run may hold at once. Zero: MaxPerRun.
	MaxPerRun int
	// MaxTotal is how many the manager may hold at once. Zero: any number.
	MaxTotal int

	// CollectInterval is the shortest time between two collections that Acquire starts.
	// Zero: CollectInterval. Negative: Acquire starts none.
	CollectInterval time.Duration

	// IsSettled tells the collection what became of a run whose process may have
	// died. It needs Deployment. An error keeps the run's workspaces.
	IsSettled func(ctx context.Context, runID string) (Settlement, error)

	// BeforeRelease is called with the workspaces of a run that is about to lose them, for
	// at most BeforeReleaseTimeout. They still work; they are gone when it returns. It is not
	// called for an interrupted run, which keeps them.
	BeforeRelease func(ctx context.Context, runID string, outcome Outcome, workspaces []Workspace)

	// OnError gets failures in the background: disposals, collections. Nil: they are
	// dropped. Nothing is ever printed.
	OnError func(err error)

	// Observer is told of every operation. Nil: nobody is.
	Observer Observer

	// Now is the clock that expiry is told by. Nil: time.Now.
	Now func() time.Time
}

// HostFetch is how the manager fetches repositories on the host: one commit, into a bare
// cache that runs nothing, then as a pack into the workspace. The repository is
// an address that a model named and a trusted network fetches, hence the rules.
type HostFetch struct {
	// CacheDir holds the fetched repositories. Empty: a directory below the user's
	// cache directory.
	CacheDir string

	// MaxBytes bounds CacheDir; what was not used for longest goes first. Zero: 2 GiB.
	MaxBytes int64

	// Credential supplies what a private repository wants, asked at every fetch. It never
	// enters the workspace. Nil, or a zero Credential: none. On a provider that shares
	// the host it is refused unless CredentialOnSharedHost.
	Credential func(ctx context.Context, runID, url string) (Credential, error)

	// CredentialOnSharedHost permits Credential where commands of a workspace run as
	// our own user and might read our memory (the local provider).
	CredentialOnSharedHost bool

	// AllowAddress permits an address in the loopback, link-local or private ranges,
	// which are refused otherwise. Nil: none.
	AllowAddress func(address netip.Addr) bool

	// CAFile is a PEM file of certificate authorities that https servers may be signed
	// by, instead of the system's. Empty: the system's.
	CAFile string
}

// A Credential opens a private repository over https.
type Credential struct {
	Username, Password string

	// Scope names whose view of the repository this credential opens, an installation or a
	// user. Fetches of different scopes share nothing. Empty: the run alone.
	Scope string
}

// An Outcome is how a run ended, or why it waits.
type Outcome string

// The outcomes of a run.
const (
	Completed Outcome = "completed"
	Failed    Outcome = "failed"
	Cancelled Outcome = "cancelled"
	// Interrupted is not settled: the run keeps its workspaces, and its running
	// commands are stopped.
	Interrupted Outcome = "interrupted"
)

// DefaultDeployment is the deployment of a manager that names none.
const DefaultDeployment = "default"

// filled returns the options with defaults in place, or what is wrong with them.
func (o Options) filled() (Options, error) {
	invalid := func(format string, args ...any) (Options, error) {
		return Options{}, fmt.Errorf("%w: %w", ErrInvalidConfig, fmt.Errorf(format, args...))
	}
	if o.Deployment == "" {
		if o.IsSettled != nil {
			return invalid("IsSettled needs a Deployment: without one, the workspaces of other programs would be asked about")
		}
		o.Deployment = DefaultDeployment
	}
	if err := CheckDeployment(o.Deployment); err != nil {
		return invalid("deployment: %w", err)
	}
	if o.Image != "" {
		if err := CheckImage(o.Image); err != nil {
			return invalid("image: %w", err)
		}
	}
	if err := CheckEnv(o.Env); err != nil {
		return invalid("env: %w", err)
	}
	o.Env = maps.Clone(o.Env)
	if err := o.Limits.Validate(); err != nil {
		return invalid("limits: %w", err)
	}
	if o.MaxPerRun < 0 || o.MaxTotal < 0 {
		return invalid("negative MaxPerRun or MaxTotal")
	}
	if o.MaxPerRun == 0 {
		o.MaxPerRun = MaxPerRun
	}
	if o.CollectInterval == 0 {
		o.CollectInterval = CollectInterval
	}
	if o.HostFetch != nil && o.AllowRepo == nil {
		return invalid("HostFetch needs AllowRepo: the model names an address that this host fetches")
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return o, nil
}
