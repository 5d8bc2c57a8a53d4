package docker

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/volume"
	"github.com/docker/docker/client"
	"github.com/stretchr/testify/require"

	"github.com/carrel-dev/carrel/contracttest"
	"github.com/carrel-dev/carrel/workspaces"
)

// declared is what a container can do, and all of it.
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
		contracttest.LimitsPIDs,
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
	c := engine(t)
	options.Client, options.Image, options.Pull, options.Network = c, testImage, PullNever, "none"
	contracttest.Run(t, contracttest.Config{
		New: func(t testing.TB) workspaces.Provider {
			p, err := New(options)
			require.NoError(t, err)
			return p
		},
		Capabilities: declared(),
		Leftovers: func(ctx context.Context, _ workspaces.Provider, deployment string) ([]string, error) {
			return leftovers(ctx, c, deployment)
		},
		Remove: func(ctx context.Context, w workspaces.Workspace) error {
			return c.ContainerRemove(ctx, w.Info().Resource["container.id"], container.RemoveOptions{Force: true, RemoveVolumes: true})
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

// leftovers lists the containers and volumes of a deployment.
func leftovers(ctx context.Context, c *client.Client, deployment string) ([]string, error) {
	var left []string
	containers, err := c.ContainerList(ctx, container.ListOptions{All: true, Filters: ours(deployment, "")})
	if err != nil {
		return nil, err
	}
	for _, found := range containers {
		left = append(left, "container "+found.ID)
	}
	volumes, err := c.VolumeList(ctx, volume.ListOptions{Filters: ours(deployment, "")})
	if err != nil {
		return nil, err
	}
	for _, found := range volumes.Volumes {
		left = append(left, "volume "+found.Name)
	}
	return left, nil
}
