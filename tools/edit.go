package tools

import (
	"bytes"
	"context"
	_ "embed"
	"fmt"
	"strings"

	"github.com/carrel-dev/carrel/workspaces"
)

//go:embed edit.md
var editText string

type editArguments struct {
	Path       string `json:"path" jsonschema:"minLength=1,maxLength=4096" jsonschema_description:"File, relative to /workspace."`
	OldString  string `json:"old_string" jsonschema:"minLength=1,maxLength=1048576" jsonschema_description:"The exact text to replace, without line numbers."`
	NewString  string `json:"new_string" jsonschema:"maxLength=1048576" jsonschema_description:"The text to put there; empty deletes."`
	ReplaceAll bool   `json:"replace_all,omitempty" jsonschema_description:"Replace every match, not just a single one."`
	target
}

func editFile(ctx context.Context, r room, a editArguments) (string, error) {
	path := r.path(a.Path)
	var lines []int
	err := workspaces.Update(ctx, r.Workspace, path, func(at string, old []byte) ([]byte, error) {
		if err := refuseGit(path, at); err != nil {
			return nil, err
		}
		if what := notText(old); what != "" {
			return nil, refuse("%s is %s, not UTF-8 text. It was left as it is", path, what)
		}
		edited, where, err := applyEdit(old, a.OldString, a.NewString, a.ReplaceAll)
		lines = where
		return edited, err
	})
	if err != nil {
		return "", err
	}
	if len(lines) == 1 {
		return fmt.Sprintf("Replaced 1 match in %s, at line %d.", path, lines[0]), nil
	}
	return fmt.Sprintf("Replaced %d matches in %s, at lines %s.", len(lines), path, someNumbers(lines)), nil
}

// countMax bounds the search for ambiguous matches.
const countMax = 1000

// applyEdit replaces oldString in raw by newString, once or, with all, at every match from left to
// right. It returns the lines where matches begin, in the old numbering. Matching is literal, but for a newline
// in oldString, which also matches CRLF; an oldString with CR is matched byte by byte. What
// oldString and newString have in common at both ends is not touched, and new lines end as those
// they replace or follow.
func applyEdit(raw []byte, oldString, newString string, all bool) ([]byte, []int, error) {
	switch oldString {
	case "":
		return nil, nil, refuse("old_string is empty. Use write_file to create a file or to replace all of it")
	case newString:
		return nil, nil, refuse("old_string and new_string are the same; nothing was changed")
	}
	t := newText(raw)
	if t.skip > 0 {
		oldString, newString = strings.TrimPrefix(oldString, string(byteOrderMark)), strings.TrimPrefix(newString, string(byteOrderMark))
		if oldString == "" {
			return nil, nil, refuse("old_string is nothing but a byte order mark, which stays where it is")
		}
	}
	if strings.Contains(oldString, "\r") {
		t = text{body: raw[t.skip:], skip: t.skip}
	} else if len(t.crlf) > 0 {
		newString = strings.ReplaceAll(newString, "\r\n", "\n")
	}

	at := matches(t.body, oldString, !all)
	switch {
	case len(at) == 0:
		return nil, nil, notFound(newText(raw), oldString, newString)
	case len(at) > 1 && !all:
		return nil, nil, refuse("old_string has %s matches, at lines %s; nothing was changed. "+
			"Add neighbouring lines until it is unique, or set replace_all", count(len(at)), someNumbers(linesOf(t, at)))
	}

	front, back := common(oldString, newString)
	gone, come := oldString[front:len(oldString)-back], newString[front:len(newString)-back]
	var out bytes.Buffer
	done := 0
	for _, i := range at {
		from, to := i+front, i+front+len(gone)
		out.Write(raw[done:t.offset(from)])
		t.writeLines(&out, come, from, to)
		done = t.offset(to)
	}
	out.Write(raw[done:])
	if bytes.Equal(out.Bytes(), raw) {
		return nil, nil, refuse("old_string and new_string differ in line endings only, and those of the file stay; nothing was changed. Use bash to convert line endings")
	}
	return out.Bytes(), linesOf(t, at), nil
}

// matches returns where old begins in body: overlapping matches, at most countMax of them, or
// else every match from left to right.
func matches(body []byte, old string, overlapping bool) []int {
	var at []int
	for i := 0; ; {
		k := bytes.Index(body[i:], []byte(old))
		if k < 0 || overlapping && len(at) == countMax {
			return at
		}
		at = append(at, i+k)
		i += k + len(old)
		if overlapping {
			i = at[len(at)-1] + 1
		}
	}
}

// common is how many bytes a and b share at the beginning and, of the rest, at the end.
func common(a, b string) (front, back int) {
	for front < len(a) && front < len(b) && a[front] == b[front] {
		front++
	}
	for back < len(a)-front && back < len(b)-front && a[len(a)-1-back] == b[len(b)-1-back] {
		back++
	}
	return front, back
}

// writeLines writes what replaces body[from:to], each newline as the one it replaces was
// written, further ones as the last of those or as the neighbours are.
func (t text) writeLines(out *bytes.Buffer, lines string, from, to int) {
	if len(t.crlf) == 0 {
		out.WriteString(lines)
		return
	}
	ending := t.neighbour(from, to)
	for next := from; ; {
		line, rest, more := strings.Cut(lines, "\n")
		out.WriteString(line)
		if !more {
			return
		}
		if k := bytes.IndexByte(t.body[next:to], '\n'); k >= 0 {
			ending = t.ending(next + k)
			next += k + 1
		}
		out.WriteString(ending)
		lines = rest
	}
}

// neighbour is how the newline after body[from:to] is written, or else the one before.
func (t text) neighbour(from, to int) string {
	if k := bytes.IndexByte(t.body[to:], '\n'); k >= 0 {
		return t.ending(to + k)
	}
	if k := bytes.LastIndexByte(t.body[:from], '\n'); k >= 0 {
		return t.ending(k)
	}
	return "\n"
}

// linesOf turns ascending places into line numbers.
func linesOf(t text, at []int) []int {
	lines := make([]int, 0, len(at))
	line, seen := 1, 0
	for _, i := range at {
		line += bytes.Count(t.body[seen:i], []byte("\n"))
		seen = i
		lines = append(lines, line)
	}
	return lines
}

func count(n int) string {
	if n >= countMax {
		return fmt.Sprintf("%d or more", countMax)
	}
	return fmt.Sprint(n)
}

func someNumbers(numbers []int) string {
	const most = 10
	var b strings.Builder
	for i, n := range numbers {
		if i == most {
			b.WriteString(", ...")
			break
		}
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprint(&b, n)
	}
	return b.String()
}
