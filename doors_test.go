// Package carrel_test holds the rules of the whole module, as tests.
package carrel_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const module = "github.com/carrel-dev/carrel/"

// A door is what a package must never depend on, directly or not, and why.
type door struct {
	from   string                 // a package of ours, below the module
	shut   func(path string) bool // the dependencies it must not have
	reason string
}

func below(prefixes ...string) func(string) bool {
	return func(path string) bool {
		return slices.ContainsFunc(prefixes, func(p string) bool {
			return path == p || strings.HasPrefix(path, strings.TrimSuffix(p, "/")+"/")
		})
	}
}

func either(shut ...func(string) bool) func(string) bool {
	return func(path string) bool {
		return slices.ContainsFunc(shut, func(s func(string) bool) bool { return s(path) })
	}
}

func outsideStandardLibrary(path string) bool {
	first, _, _ := strings.Cut(path, "/")
	return strings.Contains(first, ".") && path != module+"workspaces"
}

const (
	eino = "github.com/cloudwego"
	sdk  = "go.opentelemetry.io/otel/sdk"
)

var (
	testOnly    = below("testing", "github.com/stretchr/testify", "go.uber.org/goleak", module+"contracttest")
	telemetryIs = below("go.opentelemetry.io")
)

func ours(rooms ...string) func(string) bool {
	var all []string
	for _, room := range rooms {
		all = append(all, module+room)
	}
	return below(all...)
}

func doors() []door {
	provider := func(name string, others ...string) door {
		return door{"providers/" + name, either(ours(append(others, "tools", "lifecycle", "telemetry", "contracttest", "examples")...), below(eino, sdk), testOnly),
			"a provider knows its infrastructure and the contract, nothing above and no neighbour"}
	}
	return []door{
		{"workspaces", either(outsideStandardLibrary, testOnly), "the core is the standard library alone: frameworks and SDKs move, it must not"},
		provider("local", "providers/docker", "providers/k8s", "providers/remote"),
		provider("remote", "providers/docker", "providers/k8s", "providers/local"),
		provider("docker", "providers/local", "providers/k8s"),
		provider("k8s", "providers/local", "providers/docker"),
		{"tools", either(ours("lifecycle", "telemetry", "providers", "contracttest"), telemetryIs, testOnly), "tools work with any provider, hook and telemetry"},
		{"lifecycle", either(ours("tools", "telemetry", "providers", "contracttest"), telemetryIs, testOnly), "the hook settles runs, whatever tools and providers they use"},
		{"telemetry", either(ours("tools", "lifecycle", "providers", "contracttest"), below(eino, sdk), testOnly), "an application chooses the SDK and its version; the framework belongs to einotrace"},
		{"telemetry/einotrace", either(ours("tools", "lifecycle", "providers", "contracttest"), below(sdk), testOnly), "an application chooses the SDK and its version"},
		{"contracttest", either(ours("tools", "lifecycle", "telemetry", "providers"), below(eino, sdk)), "the suite proves any provider and knows none"},
	}
}

// listed is what go list says of a package.
type listed struct {
	ImportPath string
	Deps       []string
	Standard   bool
	Error      *struct{ Err string }
}

// dependencies asks go list, with files laid over those of the module.
func dependencies(t *testing.T, overlay map[string]string) map[string][]string {
	t.Helper()
	args := []string{"list", "-deps=false", "-e", "-json=ImportPath,Deps,Error"}
	if len(overlay) > 0 {
		data, err := json.Marshal(map[string]any{"Replace": overlay})
		require.NoError(t, err)
		file := filepath.Join(t.TempDir(), "overlay.json")
		require.NoError(t, os.WriteFile(file, data, 0o600))
		args = append(args, "-overlay", file)
	}
	out, err := exec.Command("go", append(args, "./...")...).Output()
	require.NoError(t, err)
	all := make(map[string][]string)
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		err := decoder.Decode(&p)
		if errors.Is(err, io.EOF) {
			return all
		}
		require.NoError(t, err)
		all[p.ImportPath] = p.Deps
	}
}

// broken lists the open doors: which package reaches what, and why it must not.
func broken(packages map[string][]string) []string {
	var found []string
	for _, d := range doors() {
		from := module + d.from
		for _, dep := range packages[from] {
			if dep != from && d.shut(dep) {
				found = append(found, fmt.Sprintf("%s must not depend on %s: %s", d.from, dep, d.reason))
			}
		}
	}
	for path, deps := range packages {
		room := strings.TrimPrefix(path, module)
		if below("examples")(room) {
			continue
		}
		for _, dep := range deps {
			if strings.HasPrefix(dep, module+"examples/") {
				found = append(found, fmt.Sprintf("%s must not depend on %s: nothing imports an example", room, dep))
			}
		}
	}
	return found
}

func TestDoors(t *testing.T) {
	packages := dependencies(t, nil)
	for _, d := range doors() {
		if _, err := os.Stat(d.from); os.IsNotExist(err) {
			continue // a room that is still to be built has its door already
		}
		require.Contains(t, packages, module+d.from, "a door names a folder without a package")
	}
	require.Empty(t, broken(packages))
}

// A door that nobody has tried may be painted on.
func TestForbiddenImportIsFound(t *testing.T) {
	here, err := os.Getwd()
	require.NoError(t, err)
	for room, forbidden := range map[string]string{
		"workspaces":          "github.com/cloudwego/eino/schema",
		"tools":               module + "lifecycle",
		"lifecycle":           module + "tools",
		"telemetry":           "go.opentelemetry.io/otel/sdk/trace",
		"telemetry/einotrace": module + "providers/local",
		"providers/local":     "github.com/stretchr/testify/assert",
		"contracttest":        module + "providers/local",
	} {
		t.Run(strings.ReplaceAll(room, "/", "-"), func(t *testing.T) {
			evil := filepath.Join(t.TempDir(), "evil.go")
			name := filepath.Base(room)
			require.NoError(t, os.WriteFile(evil, fmt.Appendf(nil, "package %s\n\nimport _ %q\n", name, forbidden), 0o600))
			found := broken(dependencies(t, map[string]string{filepath.Join(here, room, "evil.go"): evil}))
			require.NotEmpty(t, found)
			require.Contains(t, strings.Join(found, "\n"), room+" must not depend on "+forbidden)
		})
	}
}
