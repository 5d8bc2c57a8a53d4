package contracttest

import (
	"context"
	"fmt"

	"github.com/stretchr/testify/require"

	"github.com/carrel-dev/carrel/workspaces"
)

func capabilityCases() []Case {
	return []Case{
		{ID: "capabilities", Rule: "An optional interface is there exactly when its capability is declared.", run: capabilitiesCase},
	}
}

func limitCases() []Case {
	return []Case{
		{ID: "R4-layers", Rule: "Environment and limits are layered: the manager's, over them the call's, over them the command's.", run: layersCase},
		{ID: "R4-invalid", Rule: "Invalid environment names and quantities are refused, and nothing is made.", run: invalidCase},
		{ID: "R5-unsupported", Rule: "An explicit limit or image that the provider cannot enforce is refused at create; one that it can is taken.", run: unsupportedCase},
		{ID: "W18-out-of-memory", Rule: "One command out of memory is reported as such, and the workspace works on.", Needs: []Capability{LimitsMemory}, run: outOfMemoryCase},
	}
}

func capabilitiesCase(f *fixture) {
	w := f.provided(f.workspace())
	sharer, shares := workspaces.As[workspaces.HostSharer](f.provider)
	_, finds := workspaces.As[workspaces.Finder](f.provider)
	_, collects := workspaces.As[workspaces.Collector](f.provider)
	_, probes := workspaces.As[workspaces.Prober](w)
	_, writesAt := workspaces.As[workspaces.LinkWriter](w)
	dir, hasDir := workspaces.As[workspaces.HostDir](w)
	for capability, there := range map[Capability]bool{
		SharesHost: shares && sharer.SharesHost(), Finds: finds, Collects: collects, Probes: probes, WritesAt: writesAt, HostDir: hasDir,
	} {
		require.Equal(f, f.can(capability), there, "capability %q: declared, is there", capability)
	}
	if hasDir {
		require.Equal(f, dir.HostDir()+"\n", f.shell(f.workspace(), "pwd -P"))
	}
}

func layersCase(f *fixture) {
	m := f.manager(func(o *workspaces.Options) {
		o.Env = map[string]string{"A": "manager", "B": "manager", "C": "manager"}
	})
	w := f.acquire(f.open(m, runID), workspaces.AcquireOptions{Env: map[string]string{"B": "call", "C": "call", "D": "two\nlines 'and' $A"}})
	command := sh(`printf '%s|' "$A" "$B" "$C" "$D"`)
	require.Equal(f, "manager|call|call|two\nlines 'and' $A|", f.exec(w, command).Stdout)
	command.Env = map[string]string{"C": "command"}
	require.Equal(f, "manager|call|command|two\nlines 'and' $A|", f.exec(w, command).Stdout)

	// No layer takes away what makes a workspace work.
	w = f.acquire(f.open(m, "another run"), workspaces.AcquireOptions{Env: map[string]string{workspaces.WorkspaceEnv: "/elsewhere"}})
	require.Equal(f, f.shell(w, "pwd -P"), f.shell(w, `cd "$WORKSPACE" && pwd -P`))
}

func invalidCase(f *fixture) {
	run := f.run()
	for name, options := range map[string]workspaces.AcquireOptions{
		"env name":    {Env: map[string]string{"A=B": "x"}},
		"env NUL":     {Env: map[string]string{"A": "a\x00b"}},
		"no quantity": {Limits: workspaces.Limits{Memory: "lots"}},
		"negative":    {Limits: workspaces.Limits{CPU: "-1"}},
		"lifetime":    {Limits: workspaces.Limits{Lifetime: -1}},
		"ref alone":   {Ref: "main"},
		"image":       {Image: "alpine"},
	} {
		_, err := f.tryAcquire(f.Context(), run, options)
		require.ErrorIs(f, err, workspaces.ErrInvalidInput, name)
	}
	require.Empty(f, f.leftovers(f.deployment))
	w := f.workspace()
	for name, command := range map[string]workspaces.Command{
		"no program": {}, "empty program": {Args: []string{""}}, "NUL": {Args: []string{"echo", "a\x00b"}},
		"env":     {Args: []string{"true"}, Env: map[string]string{"1": "x"}},
		"timeout": {Args: []string{"true"}, Timeout: workspaces.ExecTimeoutMax + 1}, "negative timeout": {Args: []string{"true"}, Timeout: -1},
	} {
		require.ErrorIs(f, f.attempt(f.Context(), w, command, f.bound).err, workspaces.ErrInvalidInput, name)
	}
	require.Equal(f, "on\n", f.shell(w, "echo on"))
}

func unsupportedCase(f *fixture) {
	m := f.manager(func(o *workspaces.Options) {
		o.AllowImage = func(context.Context, string, string) error { return nil }
	})
	for i, c := range []struct {
		capability Capability
		limits     workspaces.Limits
	}{
		{LimitsCPU, workspaces.Limits{CPU: "500m"}},
		{LimitsMemory, workspaces.Limits{Memory: "256Mi"}},
		{LimitsStorage, workspaces.Limits{Storage: "1Gi"}},
		{LimitsPIDs, workspaces.Limits{PIDs: 200}},
	} {
		run := f.open(m, fmt.Sprintf("run %d", i))
		acquired, err := f.tryAcquire(f.Context(), run, workspaces.AcquireOptions{Limits: c.limits})
		if f.can(c.capability) {
			require.NoError(f, err, "%s", c.capability)
			f.dispose(acquired.Workspace)
		} else {
			require.ErrorIs(f, err, workspaces.ErrUnsupported, "%s", c.capability)
		}
		require.Empty(f, f.leftovers(f.deployment), "%s", c.capability)
	}
	// A registry that cannot be: the image is refused, or not found.
	_, err := f.tryAcquire(f.Context(), f.open(m, "image"), workspaces.AcquireOptions{Image: "registry.invalid/carrel/none:none"})
	require.Error(f, err, "an image that cannot be")
	if !f.can(Images) {
		require.ErrorIs(f, err, workspaces.ErrUnsupported)
	}
	require.Empty(f, f.leftovers(f.deployment))
}

func outOfMemoryCase(f *fixture) {
	w := f.acquire(f.open(f.manager(nil), runID), workspaces.AcquireOptions{Limits: workspaces.Limits{Memory: "128Mi"}})
	// What has no end of a line has to be kept whole.
	r := f.attempt(f.Context(), w, sh("tail /dev/zero >/dev/null"), f.bound)
	require.NoError(f, r.err)
	require.True(f, r.OOMKilled, "%+v", r.Result)
	require.NotZero(f, r.ExitCode)
	require.False(f, r.TimedOut)
	next := f.exec(w, sh("echo on; exit 1"))
	require.Equal(f, "on\n", next.Stdout)
	require.False(f, next.OOMKilled, "the command after it")
}
