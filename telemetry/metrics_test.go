package telemetry

import (
	"context"
	"fmt"
	"io/fs"
	"regexp"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/carrel-dev/carrel/providers/local"
	"github.com/carrel-dev/carrel/workspaces"
)

func collect(t *testing.T, r *recording) []metricdata.Metrics {
	t.Helper()
	var data metricdata.ResourceMetrics
	require.NoError(t, r.metrics.Collect(context.Background(), &data))
	var all []metricdata.Metrics
	for _, scope := range data.ScopeMetrics {
		require.Equal(t, ScopeName, scope.Scope.Name)
		all = append(all, scope.Metrics...)
	}
	sort.Slice(all, func(i, j int) bool { return all[i].Name < all[j].Name })
	return all
}

type point struct {
	attrs attribute.Set
	value string
}

func points(t *testing.T, m metricdata.Metrics) (kind string, all []point) {
	t.Helper()
	switch data := m.Data.(type) {
	case metricdata.Sum[int64]:
		kind = "counter"
		if !data.IsMonotonic {
			kind = "up-down counter"
		}
		for _, p := range data.DataPoints {
			all = append(all, point{p.Attributes, fmt.Sprint(p.Value)})
		}
	case metricdata.Histogram[float64]:
		kind = "histogram"
		for _, p := range data.DataPoints {
			all = append(all, point{p.Attributes, fmt.Sprintf("count=%d sum=%.3f", p.Count, p.Sum)})
		}
	default:
		t.Fatalf("%s is a %T", m.Name, m.Data)
	}
	return kind, all
}

// renderMetrics writes one sorted line a data point.
func renderMetrics(t *testing.T, r *recording) string {
	t.Helper()
	var lines []string
	for _, m := range collect(t, r) {
		_, all := points(t, m)
		for _, p := range all {
			lines = append(lines, fmt.Sprintf("%s{%s} %s\n", m.Name, p.attrs.Encoded(attribute.DefaultEncoder()), p.value))
		}
	}
	sort.Strings(lines)
	return strings.Join(lines, "")
}

// proves O4
func TestMetricsO4(t *testing.T) {
	r := record(t)
	everything(r)
	golden(t, "metrics.golden", renderMetrics(t, r))
}

// proves O4: the number of live workspaces follows the manager, at failures too.
func TestLiveO4(t *testing.T) {
	r := record(t)
	live := func(kind workspaces.OperationKind, live int, err error) {
		r.run(context.Background(), workspaces.Operation{Kind: kind, Provider: "local"}, workspaces.OperationOutcome{Live: live, Err: err})
	}
	live(workspaces.OperationCreate, 1, nil)
	live(workspaces.OperationCreate, 2, nil)
	live(workspaces.OperationCreate, 2, workspaces.ErrUnavailable)
	live(workspaces.OperationDispose, 2, workspaces.ErrUnavailable)
	live(workspaces.OperationExec, 0, nil) // tells nothing of it
	require.Contains(t, renderMetrics(t, r), "carrel.workspace.live{carrel.provider=local} 2\n")
	live(workspaces.OperationDispose, 1, nil)
	live(workspaces.OperationCollect, 0, nil)
	require.Contains(t, renderMetrics(t, r), "carrel.workspace.live{carrel.provider=local} 0\n")
}

// proves O2, O4: what a manager tells makes every metric, the phases of a create included.
func TestManagerO2O4(t *testing.T) {
	r := record(t)
	provider, err := local.New(local.Options{Root: t.TempDir()})
	require.NoError(t, err)
	manager, err := workspaces.NewManager(provider, workspaces.Options{Observer: r, CollectInterval: -1})
	require.NoError(t, err)
	run, err := manager.Open("run-1")
	require.NoError(t, err)
	acquired, err := run.Acquire(t.Context(), workspaces.AcquireOptions{})
	require.NoError(t, err)
	require.Contains(t, renderMetrics(t, r), "carrel.workspace.live{carrel.provider=local} 1\n")

	require.NoError(t, acquired.Workspace.WriteFile(t.Context(), "f", []byte("x")))
	_, err = acquired.Workspace.ReadFile(t.Context(), "missing")
	require.ErrorIs(t, err, fs.ErrNotExist)
	_, err = acquired.Workspace.Exec(t.Context(), workspaces.Command{Args: []string{"sleep", "60"}, Timeout: 10 * time.Millisecond})
	require.NoError(t, err)
	require.NoError(t, run.Release(context.Background(), workspaces.Completed))
	_, err = manager.Collect(t.Context())
	require.NoError(t, err)
	require.NoError(t, manager.Close(context.Background()))

	require.Len(t, r.spans.Ended(), len(r.spans.Started()))
	var names []string
	for _, span := range r.spans.Ended() {
		names = append(names, span.Name())
	}
	require.Equal(t, []string{"carrel.exec", "carrel.checkout", "carrel.create", "carrel.write", "carrel.read", "carrel.exec", "carrel.dispose", "carrel.collect"}, names)
	sums := regexp.MustCompile(` sum=\S+`)
	require.Equal(t, `carrel.create.duration{carrel.create.phase=checkout,carrel.provider=local,carrel.workspace.reused=false} count=1
carrel.create.duration{carrel.create.phase=provision,carrel.provider=local,carrel.workspace.reused=false} count=1
carrel.create.duration{carrel.create.phase=total,carrel.provider=local,carrel.workspace.reused=false} count=1
carrel.exec.duration{carrel.provider=local,carrel.session.hit=false,error.type=timeout} count=1
carrel.exec.duration{carrel.provider=local,carrel.session.hit=false} count=1
carrel.failures{carrel.operation=exec,carrel.provider=local,error.type=timeout} 1
carrel.failures{carrel.operation=read,carrel.provider=local,error.type=not_found} 1
carrel.session.lookups{carrel.provider=local,carrel.session.hit=false} 2
carrel.workspace.live{carrel.provider=local} 0
`, sums.ReplaceAllString(renderMetrics(t, r), ""))
}
