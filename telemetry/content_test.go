package telemetry

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"

	"github.com/carrel-dev/carrel/workspaces"
)

// proves O3: no arguments, paths, output or messages unless switched on; environment and stdin never.
func TestContentO3(t *testing.T) {
	t.Run("off", func(t *testing.T) {
		r := record(t)
		everything(r)
		all := render(r.spans.Ended()) + r.logs.String() + renderMetrics(t, r)
		require.NotContains(t, all, "SECRET")
	})
	t.Run("on", func(t *testing.T) {
		r := record(t, WithContent(true))
		everything(r)
		all := render(r.spans.Ended()) + r.logs.String()
		for _, part := range []string{"args-SECRET", "stdout-SECRET", "stderr-SECRET", "missing-SECRET", "out-SECRET"} {
			require.Contains(t, all, part)
		}
		require.NotContains(t, all+renderMetrics(t, r), "env-SECRET")
		require.NotContains(t, all, "stdin-SECRET")
		require.NotContains(t, renderMetrics(t, r), "SECRET", "metrics never hold content")
	})
}

// proves R1, O3: what the rules refuse is recorded nowhere, with content neither.
func TestRefusedRepositoryR1O3(t *testing.T) {
	for _, repository := range []string{
		"https://user:tok_SECRET@127.0.0.1:1/x.git", "https://tok_SECRET@github.com/a/b",
		"https://github.com/a/b?token=tok_SECRET", "tok_SECRET",
	} {
		r := record(t, WithContent(true))
		operation := workspaces.Operation{
			Kind: workspaces.OperationCreate, Provider: "local", RunID: "run-1",
			Info: workspaces.Info{Repository: repository, Ref: "--upload-pack=tok_SECRET"},
		}
		r.run(context.Background(), operation, workspaces.OperationOutcome{Err: workspaces.ErrInvalidInput, Info: operation.Info})
		require.NotContains(t, render(r.spans.Ended())+r.logs.String()+renderMetrics(t, r), "SECRET", repository)
	}
}

// proves O3: everything recorded is valid UTF-8 and bounded.
func TestBoundedO3(t *testing.T) {
	bad := strings.Repeat("a\xff中", 20_000)
	r := record(t, WithContent(true))
	info := workspaces.Info{
		RunID: bad, Provider: bad, Image: bad, Repository: "https://github.com/a/" + bad, Ref: bad, Commit: bad,
		Resource: map[string]string{bad: bad},
	}
	for i := range 100 {
		info.Resource[fmt.Sprint("key", i)] = bad
	}
	args := make([]string, 10_000)
	for i := range args {
		args[i] = "x"
	}
	for _, command := range [][]string{{bad, bad, bad}, args, make([]string, 10_000), nil} {
		for _, kind := range kinds() {
			operation := workspaces.Operation{
				Kind: kind, Provider: bad, RunID: bad, Workspace: bad, Info: info, Path: bad,
				Command: workspaces.Command{Args: command, Dir: bad},
			}
			outcome := workspaces.OperationOutcome{
				Err:  &workspaces.CheckoutError{Step: bad, Stderr: bad},
				Info: info, Workspace: bad, Result: workspaces.Result{Stdout: bad, Stderr: bad},
			}
			r.run(context.Background(), operation, outcome)
			outcome.Err = nil
			r.run(context.Background(), operation, outcome)
		}
	}
	for _, span := range r.spans.Ended() {
		total := len(span.Name()) + len(span.Status().Description)
		require.True(t, utf8.ValidString(span.Status().Description))
		for _, attr := range span.Attributes() {
			require.True(t, utf8.ValidString(string(attr.Key)))
			text := []string{attr.Value.Emit()}
			if attr.Value.Type() == attribute.STRINGSLICE {
				text = attr.Value.AsStringSlice()
			}
			total += len(attr.Key)
			for _, s := range text {
				require.True(t, utf8.ValidString(s), "%s", attr.Key)
				total += len(s)
			}
		}
		require.Less(t, total, 40_000, span.Name())
		require.Empty(t, span.Events())
	}
	require.True(t, utf8.ValidString(renderMetrics(t, r)))
}
