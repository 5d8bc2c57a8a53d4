//go:build linux

package contracttest

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var caseID = regexp.MustCompile(`^(capabilities|[A-Z][0-9]+-[a-z0-9-]+)$`)

// TestCases lists the cases.
func TestCases(t *testing.T) {
	seen := make(map[string]bool)
	for _, c := range Cases() {
		require.Regexp(t, caseID, c.ID)
		require.False(t, seen[c.ID], "%s is there twice", c.ID)
		seen[c.ID] = true
		require.True(t, strings.HasSuffix(c.Rule, "."), "%s: the rule is a sentence: %s", c.ID, c.Rule)
		require.NotNil(t, c.run, c.ID)
		for _, need := range c.Needs {
			require.Contains(t, capabilities(), need, c.ID)
		}
		needs := ""
		if len(c.Needs) > 0 {
			needs = " (" + strings.Join(texts(c.Needs), ", ") + ")"
		}
		t.Logf("%s: %s%s", c.ID, c.Rule, needs)
	}
}

func texts[T ~string](values []T) []string {
	var all []string
	for _, value := range values {
		all = append(all, string(value))
	}
	return all
}
