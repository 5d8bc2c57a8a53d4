// Command testreport reads the output of `go test -json` and prints what a person wants to know of
// it: what failed and why, what was skipped, and which rules of docs/rules.md a test that ran
// has proven. It exits with 1 when a test failed, nothing ran, or a rule has no proof.
//
//	go test -json ./... | testreport -module PATH -rules docs/rules.md [-require docker,k8s]
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
)

type event struct {
	Action, Package, Test, Output, ImportPath string
	Elapsed                                   float64
}

type test struct{ pkg, name string }

type report struct {
	module  string
	verbose bool
	out     io.Writer

	output  map[test]*strings.Builder
	build   map[string]*strings.Builder // by import path of the build event
	results map[test]string             // pass, fail, skip
	started map[string]int              // tests run, by package
	count   map[string]int              // leaf results, by action
	failed  []string                    // packages
}

func main() {
	module := flag.String("module", "", "the module's path")
	rules := flag.String("rules", "", "the page that names a proof for every rule; empty: none is checked")
	require := flag.String("require", "", "engines that must not be missing, separated by commas")
	verbose := flag.Bool("v", false, "print the output of passing tests too")
	flag.Parse()

	r := &report{
		module: *module, verbose: *verbose, out: os.Stdout,
		output: make(map[test]*strings.Builder), build: make(map[string]*strings.Builder),
		results: make(map[test]string), started: make(map[string]int), count: make(map[string]int),
	}
	if err := r.read(os.Stdin); err != nil {
		fmt.Fprintln(os.Stderr, "testreport:", err)
		os.Exit(1)
	}
	ok := r.skips(*require)
	if *rules != "" {
		page, err := os.ReadFile(*rules)
		if err != nil {
			fmt.Fprintln(os.Stderr, "testreport:", err)
			os.Exit(1)
		}
		ok = r.rules(string(page)) && ok
	}
	fmt.Fprintf(r.out, "\n%d passed, %d failed, %d skipped\n", r.count["pass"], r.count["fail"], r.count["skip"])
	if !ok || len(r.failed) > 0 || r.count["fail"] > 0 || r.count["pass"] == 0 {
		os.Exit(1)
	}
}

func (r *report) short(pkg string) string {
	return strings.TrimPrefix(strings.TrimPrefix(pkg, r.module), "/")
}

// read prints a line a package as it ends, and keeps what the rest needs.
func (r *report) read(in io.Reader) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		var e event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			fmt.Fprintln(r.out, lines.Text()) // what go itself says, a missing module say
			continue
		}
		r.take(e)
	}
	return lines.Err()
}

func (r *report) take(e event) {
	key := test{e.Package, e.Test}
	switch e.Action {
	case "build-output":
		builder(r.build, e.ImportPath).WriteString(e.Output)
	case "run":
		r.started[e.Package]++
	case "output":
		builder(r.output, key).WriteString(e.Output)
	case "pass", "fail", "skip":
		if e.Test == "" {
			r.ended(e)
			return
		}
		r.results[key] = e.Action
		r.count[e.Action]++
		if e.Action == "fail" || r.verbose {
			fmt.Fprintf(r.out, "--- %s: %s %s (%.2fs)\n%s", strings.ToUpper(e.Action), r.short(e.Package), e.Test, e.Elapsed, indent(builder(r.output, key).String()))
		}
		if e.Action != "skip" {
			delete(r.output, key)
		}
	}
}

func builder[K comparable](all map[K]*strings.Builder, key K) *strings.Builder {
	if all[key] == nil {
		all[key] = new(strings.Builder)
	}
	return all[key]
}

// ended prints how a package ended, with what no single test accounts for: a build that failed, a
// panic, a data race, a leak.
func (r *report) ended(e event) {
	if e.Action != "fail" {
		if n := r.started[e.Package]; n > 0 {
			fmt.Fprintf(r.out, "ok    %-28s %6.1fs  %4d tests\n", r.short(e.Package)+"/", e.Elapsed, n)
		}
		return
	}
	r.failed = append(r.failed, e.Package)
	fmt.Fprintf(r.out, "FAIL  %s/\n", r.short(e.Package))
	for path, output := range r.build {
		if name, _, _ := strings.Cut(path, " "); name == e.Package || strings.HasPrefix(path, e.Package+"_test") || strings.HasPrefix(path, e.Package+".test") {
			fmt.Fprint(r.out, indent(output.String()))
		}
	}
	for key, output := range r.output {
		if key.pkg == e.Package && r.results[key] == "" {
			fmt.Fprint(r.out, indent(output.String()))
		}
	}
}

func indent(text string) string {
	if text == "" {
		return ""
	}
	return "    " + strings.ReplaceAll(strings.TrimRight(text, "\n"), "\n", "\n    ") + "\n"
}

// skips says loudly what was not tested. A test that an engine is missing for says "ENGINE: reason" when it
// skips.
func (r *report) skips(require string) bool {
	reasons := make(map[string]int)
	ok := true
	for key, result := range r.results {
		if result != "skip" {
			continue
		}
		reason := key.name
		for line := range strings.Lines(builder(r.output, key).String()) {
			line = strings.TrimSpace(line)
			if line != "" && !strings.HasPrefix(line, "=== ") && !strings.HasPrefix(line, "--- ") {
				_, said, found := strings.Cut(line, ": ") // after file:line
				if reason = line; found {
					reason = said
				}
			}
		}
		reasons[reason]++
		if require != "" {
			ok = false
		}
	}
	if len(reasons) > 0 {
		fmt.Fprintf(r.out, "\n%s\n", strings.Repeat("!", 72))
		fmt.Fprintln(r.out, "NOT TESTED:")
		for _, reason := range slices.Sorted(maps.Keys(reasons)) {
			fmt.Fprintf(r.out, "  %s (%d tests)\n", reason, reasons[reason])
		}
		if !ok {
			fmt.Fprintf(r.out, "CARREL_REQUIRE=%s: nothing may be skipped here\n", require)
		}
		fmt.Fprintln(r.out, strings.Repeat("!", 72))
	}
	return ok
}

// A row of the page: | W7 | what it says | `pkg.Test`, `pkg.Test/sub` |
var (
	row   = regexp.MustCompile(`(?m)^\| ([A-Z]\d+) \|(.*)\|$`)
	proof = regexp.MustCompile("`([a-z0-9/-]+)\\.((?:Test|Fuzz|Example)[^`]*)`")
)

// result is how a test ended, or a test that it would have been part of.
func (r *report) result(key test) string {
	for {
		if result := r.results[key]; result != "" {
			return result
		}
		parent := strings.LastIndexByte(key.name, '/')
		if parent < 0 || r.results[test{key.pkg, key.name[:parent]}] == "pass" {
			return ""
		}
		key.name = key.name[:parent]
	}
}

// rules checks that every row of the page names tests that ran and passed.
func (r *report) rules(page string) bool {
	var bad []string
	rows := row.FindAllStringSubmatch(page, -1)
	unproven := 0
	for _, row := range rows {
		id := row[1]
		if strings.Contains(row[2], "| open:") {
			unproven++
			continue
		}
		proofs := proof.FindAllStringSubmatch(row[2], -1)
		if len(proofs) == 0 {
			bad = append(bad, fmt.Sprintf("%s names no test", id))
		}
		for _, p := range proofs {
			key := test{r.module + "/" + p[1], p[2]}
			if p[1] == "." {
				key.pkg = r.module
			}
			switch r.result(key) {
			case "pass", "skip": // a skip has been reported above
			case "fail":
				bad = append(bad, fmt.Sprintf("%s: %s.%s failed", id, p[1], p[2]))
			default:
				bad = append(bad, fmt.Sprintf("%s: %s.%s did not run", id, p[1], p[2]))
			}
		}
	}
	fmt.Fprintf(r.out, "\n%d rules in docs/rules.md: %d proven by tests that ran, %d open\n", len(rows), len(rows)-unproven-len(bad), unproven)
	for _, b := range bad {
		fmt.Fprintln(r.out, "  RULE", b)
	}
	return len(bad) == 0 && len(rows) > 0
}
