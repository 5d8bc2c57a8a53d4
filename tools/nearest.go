package tools

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"
)

// notFound says why old_string may be absent and shows the place that is most like it.
func notFound(t text, oldString, newString string) error {
	old := strings.ReplaceAll(oldString, "\r\n", "\n")
	if stripped, ok := withoutNumbers(old); ok && bytes.Contains(t.body, []byte(stripped)) {
		return refuse("old_string is not in the file. It begins its lines with the numbers that read_file shows; leave numbers and tabs out")
	}
	said := "old_string is not in the file; nothing was changed."
	if old != oldString && bytes.Contains(t.body, []byte(old)) {
		said += " It has CRLF line endings where the file has LF."
	}
	done := false
	// After a crash a step may be done again, on the files that its first time left.
	if again := strings.ReplaceAll(newString, "\r\n", "\n"); strings.TrimSpace(again) != "" {
		if i := bytes.Index(t.body, []byte(again)); i >= 0 {
			done = true
			said += fmt.Sprintf(" But new_string is there already, at line %d: this edit may have been applied before.", t.lineOf(i))
		}
	}
	lines := strings.Split(strings.TrimSuffix(string(t.body), "\n"), "\n")
	wanted := strings.Split(strings.Trim(old, "\n"), "\n")
	first, same := nearest(lines, wanted)
	switch {
	case len(t.body) == 0:
		return refuse("%s The file is empty", said)
	case first < 0 && done:
		return refuse("%s Look with read_file", said)
	case first < 0:
		return refuse("%s There is nothing like it either. Look with read_file", said)
	case same:
		said += " This place differs in white space only:"
	default:
		said += " The nearest place is:"
	}
	return refuse("%s\n%s\nCopy old_string exactly from the file, white space included", said, excerpt(lines, first, len(wanted)))
}

var lineNumber = regexp.MustCompile(`(?m)^ *[0-9]+\t`)

// withoutNumbers takes line numbers as read_file shows them off every line.
func withoutNumbers(text string) (string, bool) {
	if len(lineNumber.FindAllStringIndex(text, -1)) < strings.Count(strings.TrimSuffix(text, "\n"), "\n")+1 {
		return text, false
	}
	return lineNumber.ReplaceAllString(text, ""), true
}

// nearest finds the line at which the lines that are wanted most nearly begin, or -1. same
// says that they are there but for white space.
func nearest(lines, wanted []string) (first int, same bool) {
	if first, votes, filled := vote(lines, wanted); votes > 0 {
		return first, votes == filled
	}
	// Not one line is there: look for the line that is most like the longest wanted one.
	longest := 0
	for j, line := range wanted {
		if len(squeeze(line)) > len(squeeze(wanted[longest])) {
			longest = j
		}
	}
	probe := pairs(squeeze(wanted[longest]))
	best, at := 0.45, -1 // below that, lines have little in common
	for i, line := range lines {
		if like := probe.likeness(squeeze(line)); like > best {
			best, at = like, i
		}
	}
	if at < 0 {
		return -1, false
	}
	return max(at-longest, 0), false
}

// vote lets every line that is there but for white space vote for where the wanted ones
// begin. filled is how many of those are not blank.
func vote(lines, wanted []string) (first, votes, filled int) {
	places := make(map[string][]int)
	for i, line := range lines {
		if key := squeeze(line); key != "" {
			places[key] = append(places[key], i)
		}
	}
	const common = 200 // a line found that often says nothing about the place, and costs
	tally := make(map[int]int)
	for j, line := range wanted {
		key := squeeze(line)
		if key == "" {
			continue
		}
		filled++
		at := places[key]
		for _, i := range at[:min(len(at), common)] {
			if i >= j {
				tally[i-j]++
			}
		}
	}
	for at, n := range tally {
		if n > votes || n == votes && at < first {
			first, votes = at, n
		}
	}
	return first, votes, filled
}

// squeeze takes the white space out of a line, and bounds it.
func squeeze(line string) string {
	const most = 400
	return strings.Join(strings.Fields(line[:min(len(line), most)]), "")
}

// A profile is the pairs of neighbouring bytes in a line, and how often each is there.
type profile struct {
	count map[[2]byte]int
	total int
}

func pairs(line string) profile {
	p := profile{count: make(map[[2]byte]int)}
	for i := 0; i+1 < len(line); i++ {
		p.count[[2]byte{line[i], line[i+1]}]++
		p.total++
	}
	return p
}

// likeness is the part of the pairs that both have: 0 for nothing, 1 for all.
func (p profile) likeness(line string) float64 {
	if len(line) < 2 || p.total == 0 {
		return 0
	}
	seen := make(map[[2]byte]int, len(line))
	shared := 0
	for i := 0; i+1 < len(line); i++ {
		pair := [2]byte{line[i], line[i+1]}
		if seen[pair] < p.count[pair] {
			seen[pair]++
			shared++
		}
	}
	return float64(2*shared) / float64(p.total+len(line)-1)
}

// excerpt shows lines as read_file does, bounded.
func excerpt(lines []string, first, n int) string {
	const mostLines, mostRunes = 12, 200
	var b strings.Builder
	last := min(first+min(n, mostLines), len(lines))
	for i := first; i < last; i++ {
		line, _ := printable([]byte(lines[i]))
		if utf8.RuneCountInString(line) > mostRunes {
			line = runePrefix(line, mostRunes) + " [cut]"
		}
		fmt.Fprintf(&b, "%d\t%s\n", i+1, line)
	}
	return strings.TrimSuffix(b.String(), "\n")
}
