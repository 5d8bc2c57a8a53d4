package telemetry

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/carrel-dev/carrel/workspaces"
)

// attributes says what each recorded attribute means. TestCatalogO2O4 fails for one that is recorded and not
// described, and for one that is described and never recorded.
var attributes = map[string]string{
	"carrel.checkout.on_host":    "the manager fetched on the host",
	"carrel.checkout.step":       "the step of a checkout that failed: `init`, `fetch`, ...",
	"carrel.create.phase":        "`provision`, `checkout` or `total`",
	"carrel.exec.oom_killed":     "the kernel killed a process of the workspace for memory meanwhile",
	"carrel.exec.stderr":         "the beginning of it, at most 4,096 bytes",
	"carrel.exec.stderr.bytes":   "raw bytes that the command wrote",
	"carrel.exec.stdout":         "the beginning of it, at most 4,096 bytes",
	"carrel.exec.stdout.bytes":   "raw bytes that the command wrote",
	"carrel.exec.timed_out":      "the command was stopped at its timeout",
	"carrel.operation":           "`create`, `checkout`, `exec`, `read`, `write`, `dispose` or `collect`",
	"carrel.provider":            "`local`, `docker`, `k8s` or the name of another provider",
	"carrel.run.id":              "the run's id",
	"carrel.session.hit":         "a session that had been opened beforehand took the command",
	"carrel.workspace.collected": "how many workspaces the collection removed",
	"carrel.workspace.id":        "the workspace's id",
	"carrel.workspace.reused":    "another process of the deployment had made it",
	"container.id":               "from the provider, with whatever else it knows of the thing behind",
	"container.image.name":       "the image as it was asked for",
	"error.type":                 "the kind of failure; absent on success",
	"file.path":                  "relative to the workspace's root",
	"file.size":                  "bytes read or written; absent on failure",
	"k8s.namespace.name":         "from the provider",
	"k8s.pod.name":               "from the provider",
	"process.command_args":       "the arguments, at most about 4,096 bytes of them",
	"process.executable.name":    "the base name of the program",
	"process.exit.code":          "the command's, or that of the git command which failed a checkout",
	"process.working_directory":  "as the command named it",
	"vcs.ref.head.name":          "branch, tag or commit id as it was asked for",
	"vcs.ref.head.revision":      "the commit that was checked out",
	"vcs.repository.url.full":    "the repository in normal form; it cannot hold a credential",
}

// proves O2, O4: the tables of the docs are what is recorded.
func TestCatalogO2O4(t *testing.T) {
	off, on := record(t), record(t, WithContent(true))
	for _, r := range []*recording{off, on} {
		everything(r)
		for _, kind := range kinds() {
			operation := workspaces.Operation{Kind: kind, Provider: "docker", RunID: "run-1", Workspace: "ws1", Info: dockerInfo}
			if kind == workspaces.OperationCollect {
				operation = workspaces.Operation{Kind: kind, Provider: "docker"} // of no run and no workspace
			}
			r.run(t.Context(), operation, workspaces.OperationOutcome{Err: workspaces.ErrUnavailable})
			r.run(t.Context(), operation, workspaces.OperationOutcome{})
		}
	}
	seen := map[string]bool{}

	var b strings.Builder
	b.WriteString("<!-- Written by go test ./telemetry -update. -->\n")
	for _, kind := range kinds() {
		always, withContent := recordedAttributes(off, kind), recordedAttributes(on, kind)
		fmt.Fprintf(&b, "\n### `%s`\n\n| attribute | what it is | only with content |\n| --- | --- | --- |\n", spanName(kind))
		for _, name := range withContent {
			content := "yes"
			if slices.Contains(always, name) {
				content = ""
			}
			fmt.Fprintf(&b, "| `%s` | %s | %s |\n", name, describe(t, seen, name), content)
		}
		require.Subset(t, withContent, always)
	}
	golden(t, "spans.md", b.String())

	b.Reset()
	b.WriteString("<!-- Written by go test ./telemetry -update. -->\n\n| metric | kind | unit | what it is | attributes |\n| --- | --- | --- | --- | --- |\n")
	for _, m := range collect(t, on) {
		kind, all := points(t, m)
		var names []string
		for _, p := range all {
			for _, attr := range p.attrs.ToSlice() {
				names = append(names, "`"+string(attr.Key)+"`")
				describe(t, seen, string(attr.Key))
			}
		}
		slices.Sort(names)
		fmt.Fprintf(&b, "| `%s` | %s | `%s` | %s | %s |\n", m.Name, kind, m.Unit, m.Description, strings.Join(slices.Compact(names), ", "))
	}
	golden(t, "metrics.md", b.String())

	for name := range attributes {
		require.True(t, seen[name], "%s is described and never recorded", name)
	}
}

func describe(t *testing.T, seen map[string]bool, name string) string {
	t.Helper()
	require.Contains(t, attributes, name)
	seen[name] = true
	return attributes[name]
}

func recordedAttributes(r *recording, kind workspaces.OperationKind) []string {
	var names []string
	for _, span := range r.spans.Ended() {
		if span.Name() == spanName(kind) {
			for _, attr := range span.Attributes() {
				names = append(names, string(attr.Key))
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}
