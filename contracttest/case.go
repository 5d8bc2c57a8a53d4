package contracttest

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

// A Case is one thing that a provider must get right.
type Case struct {
	// ID begins with the id of the rule, or of the reported failure, that the case comes from.
	ID string
	// Rule says in a sentence what is right.
	Rule string
	// Needs are the capabilities without which the case is not expected of a provider.
	Needs []Capability

	alone bool // it measures the process: nothing else may run
	run   func(f *fixture)
}

// Cases returns all cases.
func Cases() []Case {
	return slices.Concat(
		capabilityCases(),
		execCases(), outputCases(), floodCases(), inputCases(),
		timeoutCases(), cancelCases(), stopCases(), jobCases(),
		fileCases(), linkCases(), writeCases(),
		disposeCases(), goneCases(), createCases(),
		limitCases(), expiryCases(), collectCases(), findCases(),
		checkoutCases(), refCases(), remoteCases(),
		listCases(), diffCases(),
	)
}

// Run runs the cases that the provider's capabilities let expect, each as a subtest named by its
// ID. It sets environment variables that a workspace must not see, so that it must not be called from a
// parallel test.
func Run(t *testing.T, config Config) {
	t.Helper()
	config, err := config.filled()
	if err != nil {
		t.Fatal(err)
	}
	ran := spoilEnvironment(t)
	t.Cleanup(func() {
		if _, err := os.Lstat(ran); err == nil {
			t.Error("C41: a hook or a helper of the host's git configuration was run")
		}
	})
	var without []string
	for _, c := range Cases() {
		if missing := config.missing(c.Needs); len(missing) > 0 {
			without = append(without, fmt.Sprintf("%s needs %q", c.ID, missing))
			continue
		}
		t.Run(c.ID, func(t *testing.T) {
			if !c.alone {
				t.Parallel()
			}
			failures, logs := c.execute(config, t)
			for _, line := range logs {
				t.Log(line)
			}
			if len(failures) > 0 {
				t.Errorf("the rule: %s\n%s", c.Rule, strings.Join(failures, "\n"))
			}
		})
	}
	if len(without) > 0 {
		t.Logf("not expected of this provider:\n%s", strings.Join(without, "\n"))
	}
}

// execute runs the case. t may be nil.
func (c Case) execute(config Config, t testing.TB) (failures, logs []string) {
	r := newRecorder(c.ID, t)
	r.run(18*config.Patience, func() { c.run(newFixture(r, config)) })
	return r.report()
}
