package tools

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/carrel-dev/carrel/workspaces"
)

//go:embed read.md
var readText string

const (
	readMaxLines = 2000
	readMaxRunes = 65_536
)

type readArguments struct {
	Path      string `json:"path" jsonschema:"minLength=1,maxLength=4096" jsonschema_description:"File, relative to /workspace."`
	StartLine int    `json:"start_line,omitempty" jsonschema:"minimum=1" jsonschema_description:"First line, from 1."`
	EndLine   int    `json:"end_line,omitempty" jsonschema:"minimum=1" jsonschema_description:"Last line, inclusive."`
	target
}

func readFile(ctx context.Context, r room, a readArguments) (string, error) {
	start, end := max(a.StartLine, 1), a.EndLine
	if end != 0 && end < start {
		return "", refuse("end_line %d is before start_line %d", end, start)
	}
	path, err := workspaces.CleanPath(r.path(a.Path))
	if err != nil {
		return "", err
	}
	data, err := r.ReadFile(ctx, path)
	if errors.Is(err, workspaces.ErrTooLarge) {
		return "", tooLarge(ctx, r, path, start, end)
	}
	if err != nil {
		return "", err
	}
	if what := notText(data); what != "" {
		return "", refuse("%s is %s, not UTF-8 text (%d bytes). Use bash to look at it: file, xxd, strings, iconv", path, what, len(data))
	}
	return pageOf(data, path, start, end), nil
}

// tooLarge gives the size of a file that ReadFile refuses and a command that shows a part.
func tooLarge(ctx context.Context, r room, path string, start, end int) error {
	if end == 0 {
		end = start + 199
	}
	size := fmt.Sprintf("more than %d", workspaces.FileMaxBytes)
	result, err := r.Exec(ctx, workspaces.Command{Args: []string{"wc", "-c", "--", path}})
	if err != nil {
		return err
	}
	if word, _, _ := strings.Cut(strings.TrimSpace(result.Stdout), " "); result.ExitCode == 0 {
		if n, err := strconv.ParseInt(word, 10, 64); err == nil {
			size = strconv.FormatInt(n, 10)
		}
	}
	return refuse("%s has %s bytes, read_file shows files of at most %d. See a part with bash: sed -n '%d,%dp' %s | cut -c 1-500",
		path, size, workspaces.FileMaxBytes, start, end, shellQuote(path))
}

// shellQuote is a path as an argument in a shell command that the model can copy.
func shellQuote(path string) string {
	if strings.HasPrefix(path, "-") {
		path = "./" + path
	}
	return "'" + strings.ReplaceAll(path, "'", `'\''`) + "'"
}

// pageOf is the lines from start to end (0: as many as fit) with their numbers, and notes
// about what is not there.
func pageOf(data []byte, path string, start, end int) string {
	t := newText(data)
	total := bytes.Count(t.body, []byte("\n"))
	open := len(t.body) > 0 && t.body[len(t.body)-1] != '\n' // the last line has no newline
	if open {
		total++
	}
	switch {
	case total == 0:
		return fmt.Sprintf("[%s is empty: 0 lines]", path)
	case start > total:
		return fmt.Sprintf("[%s has %d lines; line %d is past its end]", path, total, start)
	}
	if end == 0 || end > total {
		end = total
	}

	rest, at := t.body, 0
	for range start - 1 {
		i := bytes.IndexByte(rest, '\n') + 1
		rest, at = rest[i:], at+i
	}
	var b strings.Builder
	var notes []string
	line, runes, invalid := start, 0, 0
	for ; line <= end && line < start+readMaxLines; line++ {
		i := bytes.IndexByte(rest, '\n')
		content, next := rest, len(rest)
		if i >= 0 {
			content, next = rest[:i], i+1
		}
		shown, bad := printable(content)
		length := utf8.RuneCountInString(shown) + 1
		if runes+length > readMaxRunes && line > start {
			break
		}
		if length > readMaxRunes+1 {
			kept := runePrefix(shown, readMaxRunes)
			notes = append(notes, fmt.Sprintf("line %d is cut inside, after %d of %d characters; see more with bash: sed -n %dp %s | tail -c +%d | head -c 60000",
				line, readMaxRunes, length-1, line, shellQuote(path), len(kept)+1))
			shown = kept
		}
		fmt.Fprintf(&b, "%d\t%s\n", line, shown)
		runes, invalid = runes+length, invalid+bad
		rest = rest[next:]
	}
	last := line - 1
	switch {
	case last < end:
		notes = append(notes, fmt.Sprintf("lines %d-%d of %d; continue with start_line %d", start, last, total, last+1))
	case start > 1 || last < total:
		notes = append(notes, fmt.Sprintf("lines %d-%d of %d", start, last, total))
	}
	if endings := t.endings(); endings != "" {
		notes = append(notes, endings+", shown as LF; edit_file keeps them")
	}
	if open && last == total {
		notes = append(notes, "no newline at the end of the file")
	}
	if invalid > 0 {
		notes = append(notes, fmt.Sprintf(`%d bytes are not UTF-8, shown as \xNN; edit_file cannot match them`, invalid))
	}
	for _, note := range notes {
		fmt.Fprintf(&b, "[%s]\n", note)
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// printable is a line as the model sees it, and how many of its bytes are no UTF-8.
func printable(line []byte) (string, int) {
	if utf8.Valid(line) {
		return string(line), 0
	}
	var b strings.Builder
	bad := 0
	for len(line) > 0 {
		r, size := utf8.DecodeRune(line)
		if r == utf8.RuneError && size == 1 {
			fmt.Fprintf(&b, `\x%02X`, line[0])
			bad++
		} else {
			b.WriteRune(r)
		}
		line = line[size:]
	}
	return b.String(), bad
}

// runePrefix is the first n characters of s.
func runePrefix(s string, n int) string {
	for i := range s {
		if n == 0 {
			return s[:i]
		}
		n--
	}
	return s
}
