// Package contracttest proves that a provider keeps the contract of package workspaces. One call of
// Run in a test of the provider's package runs every case that its declared
// capabilities let expect:
//
//	contracttest.Run(t, contracttest.Config{
//		New:          func(t testing.TB) workspaces.Provider { ... },
//		Capabilities: []contracttest.Capability{contracttest.Collects, contracttest.Probes},
//		Leftovers:    func(ctx context.Context, p workspaces.Provider, deployment string) ([]string, error) { ... },
//		Remove:       func(ctx context.Context, w workspaces.Workspace) error { ... },
//	})
//
// The cases go through a workspaces.Manager, as tools and applications do: what the manager does for
// all providers is no provider's to do again. Where the contract asks something of the
// provider that a manager seldom does, a second disposal say, they talk to it directly.
//
// Each case has a provider, a manager, a deployment and a run of its own, prints the rule that it
// enforces when it fails, is ended by a watchdog, and fails when anything of its deployment is left. Cases lists them.
//
// A capability is checked both ways: one that is declared must work, one that is not
// must not be there, and what a provider cannot enforce it must refuse.
//
// # What it needs
//
// In the workspace sh, git and coreutils, and Linux's /proc; where setsid is there too, it is used. On
// the host git, for cases of a provider with FileRepositories.
//
// # What it does not
//
// It proves nothing of isolation, and nothing that only one kind of infrastructure has: its labels,
// its profiles, how a lost connection looks. Those are tests of the provider.
package contracttest
