//go:build linux

package contracttest

import (
	"bufio"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write testdata/broken.golden anew, of the broken providers that are run; all cases against each: half an hour")

const (
	goldenFile = "testdata/broken.golden"

	// brokenPatience is short: most of what waits for it here waits in vain.
	brokenPatience = 2 * time.Second

	// sampleMax is how many of the cases that a broken provider fails are tried without -update.
	sampleMax = 8

	// brokenWorkers is how many cases run at the same time for each of the broken providers that do.
	brokenWorkers = 6
)

func flaws() []flaw {
	return slices.Concat(outcomeFlaws(), startFlaws(), outputFlaws(), stopFlaws(), readFlaws(), writeFlaws(),
		disposeFlaws(), goneFlaws(), createFlaws(), collectFlaws())
}

// mustPass are cases that a broken provider passes unless the golden file says otherwise: it
// is broken in one thing.
func mustPass() []string {
	return []string{"W1-argv", "W10-exit-codes", "W13-dir", "C18-awkward-content", "W16-others-live", "M1-one-per-key"}
}

// alone is held by a case that must run alone, and shared by all others.
type alone struct{ sync.RWMutex }

func (a *alone) execute(c Case, config Config) (failures []string) {
	if c.alone {
		a.Lock()
		defer a.Unlock()
	} else {
		a.RLock()
		defer a.RUnlock()
	}
	failures, _ = c.execute(config, nil)
	return failures
}

// TestBrokenProviders runs deliberately broken providers against the cases that the golden file says they
// fail, a sample of very many, and some that they must pass. With -update each runs against all.
func TestBrokenProviders(t *testing.T) {
	spoilEnvironment(t)
	golden := readGolden(t)
	var gate alone
	var mu sync.Mutex
	found := make(map[string][]string)
	t.Run("all", func(t *testing.T) {
		for _, flaw := range flaws() {
			t.Run(flaw.name, func(t *testing.T) {
				t.Parallel()
				failed := tryFlaw(flaw, golden[flaw.name], &gate)
				if !*update && !flaw.racy {
					settle(t, flaw, sample(golden[flaw.name]), failed, &gate)
				}
				switch {
				case *update && !flaw.racy:
					mu.Lock()
					found[flaw.name] = failed.ids()
					mu.Unlock()
				case flaw.racy:
					require.Subset(t, failed.ids(), golden[flaw.name], "%s\n%s", flaw.what, failed)
				case !*update:
					require.Equal(t, sample(golden[flaw.name]), failed.ids(), "%s\n%s", flaw.what, failed)
				}
				require.NotEmpty(t, failed, "no case notices: %s", flaw.what)
				t.Logf("%s Fails: %s", flaw.what, strings.Join(golden[flaw.name], " "))
			})
		}
	})
	if *update {
		for name, ids := range found {
			golden[name] = ids
		}
		writeGolden(t, golden)
	}
}

// settle tries again, with nothing beside it, what went otherwise than the golden file says: a case waits for a broken provider only
// as long as brokenPatience, which a loaded machine may use up.
func settle(t *testing.T, flaw flaw, golden []string, results failed, gate *alone) {
	for _, c := range Cases() {
		_, fails := results[c.ID]
		if fails == slices.Contains(golden, c.ID) {
			continue
		}
		t.Logf("tried again alone: %s\n%s", c.ID, strings.Join(results[c.ID], "\n"))
		delete(results, c.ID)
		c.alone = true
		if failures := gate.execute(c, testConfig(flaw, brokenPatience)); len(failures) > 0 {
			results[c.ID] = failures
		}
	}
}

// failed is what went wrong in a case, by its ID.
type failed map[string][]string

func (f failed) ids() []string {
	ids := make([]string, 0, len(f))
	for _, c := range Cases() {
		if _, ok := f[c.ID]; ok {
			ids = append(ids, c.ID)
		}
	}
	return ids
}

func (f failed) String() string {
	var b strings.Builder
	for _, id := range f.ids() {
		text := strings.Join(f[id], "\n")
		fmt.Fprintf(&b, "%s:\n%.3000s\n", id, text)
	}
	return b.String()
}

// sample is what is tried of the cases that a broken provider fails: all, or some of very many.
func sample(ids []string) []string {
	if len(ids) <= sampleMax {
		return ids
	}
	some := make([]string, sampleMax)
	for i := range some {
		some[i] = ids[i*len(ids)/sampleMax]
	}
	return some
}

func tryFlaw(flaw flaw, golden []string, gate *alone) failed {
	var tasks []Case
	for _, c := range Cases() {
		config := testConfig(flaw, brokenPatience)
		if len(config.missing(c.Needs)) > 0 || c.alone && !slices.Contains(flaw.alone, c.ID) {
			continue
		}
		if *update || slices.Contains(sample(golden), c.ID) || slices.Contains(mustPass(), c.ID) && !slices.Contains(golden, c.ID) {
			tasks = append(tasks, c)
		}
	}
	queue := make(chan Case)
	results := make(failed)
	var mu sync.Mutex
	var workers sync.WaitGroup
	for range brokenWorkers {
		workers.Go(func() {
			for c := range queue {
				failures := gate.execute(c, testConfig(flaw, brokenPatience))
				if len(failures) > 0 {
					mu.Lock()
					results[c.ID] = failures
					mu.Unlock()
				}
			}
		})
	}
	for _, c := range tasks {
		queue <- c
	}
	close(queue)
	workers.Wait()
	return results
}

// TestEveryCaseIsFailed: a case that no broken provider fails proves nothing.
func TestEveryCaseIsFailed(t *testing.T) {
	golden := readGolden(t)
	names := make([]string, 0, len(golden))
	for _, flaw := range flaws() {
		require.NotContains(t, names, flaw.name)
		names = append(names, flaw.name)
		require.NotEmpty(t, golden[flaw.name], "%s is not in the golden file: run with -update", flaw.name)
	}
	require.Len(t, golden, len(names), "the golden file names broken providers that are no more")
	for _, c := range Cases() {
		require.True(t, slices.ContainsFunc(names, func(name string) bool { return slices.Contains(golden[name], c.ID) }), "no broken provider fails %s", c.ID)
	}
}

// TestReference: what the broken providers are made from passes what they fail, also the cases that a directory
// of the host has to make believe for. Nobody can make believe a limit on processes without one.
func TestReference(t *testing.T) {
	spoilEnvironment(t)
	var gate alone
	for _, capability := range []Capability{Finds, Sandbox, EndsAtExpiry, Pauses, LimitsMemory} {
		t.Run(strings.ReplaceAll(string(capability), " ", "-"), func(t *testing.T) {
			t.Parallel()
			reference := flaw{name: "reference", needs: []Capability{capability}}
			for _, c := range Cases() {
				if c.ID == "capabilities" || slices.Contains(c.Needs, capability) {
					require.Empty(t, gate.execute(c, testConfig(reference, patience)), "%s: %s", c.ID, c.Rule)
				}
			}
		})
	}
}

// readGolden reads blocks of a broken provider's name and, indented, the cases it fails.
func readGolden(t *testing.T) map[string][]string {
	golden := make(map[string][]string)
	file, err := os.Open(goldenFile)
	if os.IsNotExist(err) && *update {
		return golden
	}
	require.NoError(t, err)
	defer file.Close()
	name := ""
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if id, indented := strings.CutPrefix(lines.Text(), "\t"); indented {
			golden[name] = append(golden[name], id)
		} else if name, _, _ = strings.Cut(lines.Text(), ":"); name != "" {
			golden[name] = []string{}
		}
	}
	return golden
}

func writeGolden(t *testing.T, golden map[string][]string) {
	var b strings.Builder
	for _, flaw := range flaws() {
		if ids, ok := golden[flaw.name]; ok {
			fmt.Fprintf(&b, "%s: %s\n", flaw.name, flaw.what)
			for _, id := range ids {
				fmt.Fprintf(&b, "\t%s\n", id)
			}
		}
	}
	require.NoError(t, os.WriteFile(goldenFile, []byte(b.String()), 0o644))
}
