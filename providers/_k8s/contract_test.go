package k8s

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/carrel-dev/carrel/contracttest"
	"github.com/carrel-dev/carrel/workspaces"
)

// declared is what a pod can do, and all of it.
func declared() []contracttest.Capability {
	return []contracttest.Capability{
		contracttest.Finds,
		contracttest.Collects,
		contracttest.Probes,
		contracttest.WritesAt,
		contracttest.Sandbox,
		contracttest.EndsAtExpiry,
		contracttest.LimitsCPU,
		contracttest.LimitsMemory,
		contracttest.LimitsStorage,
		contracttest.Images,
		contracttest.FileRepositories,
	}
}

func TestContract(t *testing.T) {
	for _, profile := range []Profile{Hardened, Toolchain} {
		t.Run(string(profile), func(t *testing.T) { contract(t, Options{Profile: profile}) })
	}
}

func contract(t *testing.T, options Options) {
	c := clusterFor(t, options.Profile)
	contracttest.Run(t, contracttest.Config{
		New:          func(t testing.TB) workspaces.Provider { return c.provider(t, options) },
		Capabilities: declared(),
		Leftovers: func(ctx context.Context, _ workspaces.Provider, deployment string) ([]string, error) {
			return c.leftovers(ctx, deployment)
		},
		Remove: func(ctx context.Context, w workspaces.Workspace) error {
			return c.deletePod(ctx, w.Info().Resource["k8s.pod.name"])
		},
		Manager: func(options *workspaces.Options) {
			options.AllowRepo = func(context.Context, string, string) error { return nil }
			options.HostFetch = &workspaces.HostFetch{CacheDir: filepath.Join(t.TempDir(), "cache")}
		},
	})
}

// A capability that comes or goes is a decision.
func TestCapabilities(t *testing.T) {
	golden, err := os.ReadFile("testdata/capabilities.golden")
	require.NoError(t, err)
	text := ""
	for _, capability := range declared() {
		text += fmt.Sprintln(capability)
	}
	require.Equal(t, string(golden), text)
}
