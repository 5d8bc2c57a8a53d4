package telemetry

import (
	"context"
	"fmt"
	"sort"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

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
