//go:build linux

package local

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/carrel-dev/carrel/contracttest"
	"github.com/carrel-dev/carrel/workspaces"
)

// capabilities are what a directory of the host can do, and all of it: what is not here is refused, or
// documented as missing.
func capabilities() []contracttest.Capability {
	return []contracttest.Capability{
		contracttest.Collects,
		contracttest.SharesHost,
		contracttest.HostDir,
		contracttest.Probes,
		contracttest.WritesAt,
		contracttest.FileRepositories,
	}
}

func TestContract(t *testing.T) {
	contracttest.Run(t, contracttest.Config{
		New: func(t testing.TB) workspaces.Provider {
			p, err := New(Options{Root: filepath.Join(t.TempDir(), "root")})
			require.NoError(t, err)
			return p
		},
		Capabilities: capabilities(),
		Leftovers:    leftovers,
		Remove: func(_ context.Context, workspace workspaces.Workspace) error {
			w, _ := workspaces.As[workspaces.HostDir](workspace)
			return os.RemoveAll(w.HostDir())
		},
	})
}

// A capability that comes or goes is a decision.
func TestCapabilities(t *testing.T) {
	golden, err := os.ReadFile("testdata/capabilities.golden")
	require.NoError(t, err)
	var declared bytes.Buffer
	for _, capability := range capabilities() {
		fmt.Fprintln(&declared, capability)
	}
	require.Equal(t, string(golden), declared.String())
}

// leftovers lists what is below the root of a case's provider, and the processes of its workspaces.
func leftovers(_ context.Context, provider workspaces.Provider, deployment string) ([]string, error) {
	p, ok := workspaces.As[*Provider](provider)
	if !ok {
		return nil, fmt.Errorf("%T is no provider of this package", provider)
	}
	entries, err := os.ReadDir(p.root)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var left []string
	for _, entry := range entries {
		id, isLabel := bytes.CutSuffix([]byte(entry.Name()), []byte(labelSuffix))
		if isLabel {
			l, err := readLabel(p.root, string(id))
			if err == nil && l.Deployment != deployment {
				continue
			}
		}
		left = append(left, entry.Name())
	}
	table, err := processes()
	if err != nil {
		return nil, err
	}
	for pid, process := range table {
		if bytes.Contains(process.environment(), []byte("\x00"+workspaces.WorkspaceEnv+"="+p.root+"/")) {
			left = append(left, fmt.Sprintf("process %d", pid))
		}
	}
	return left, nil
}
