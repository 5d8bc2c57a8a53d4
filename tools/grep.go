package tools

import (
	"context"
	_ "embed"
	"fmt"
	"regexp"
	"strings"

	"github.com/carrel-dev/carrel/workspaces"
)

//go:embed grep.md
var grepText string

const (
	grepMaxMatches   = 300
	grepMaxLineRunes = 500
)

// ignoredHint is for a model that looks where nothing is looked for.
const ignoredHint = "[git-ignored files are left out; see them with ls and grep in bash]\n"

// perlClass finds what models write for a digit, which git takes for the letter.
var perlClass = regexp.MustCompile(`(^|[^\\])(\\\\)*\\[dD]`)

type grepArguments struct {
	Pattern    string `json:"pattern" jsonschema:"minLength=1,maxLength=4096" jsonschema_description:"POSIX extended regular expression, matched line by line."`
	Path       string `json:"path,omitempty" jsonschema:"minLength=1,maxLength=4096" jsonschema_description:"Directory or file to search. Leave out for everything."`
	Glob       string `json:"glob,omitempty" jsonschema:"minLength=1,maxLength=1024" jsonschema_description:"Only files that match, such as *.go or src/**/*.ts."`
	IgnoreCase bool   `json:"ignore_case,omitempty" jsonschema_description:"Ignore upper and lower case."`
	target
}

func grep(ctx context.Context, r room, a grepArguments) (string, error) {
	found, err := workspaces.Grep(ctx, r.Workspace, workspaces.GrepOptions{
		Pattern:      a.Pattern,
		Path:         r.path(a.Path),
		Glob:         a.Glob,
		IgnoreCase:   a.IgnoreCase,
		Max:          grepMaxMatches,
		MaxLineRunes: grepMaxLineRunes,
	})
	if err != nil {
		return "", err
	}
	var b strings.Builder
	for _, match := range found.Matches {
		cut := ""
		if match.Cut {
			cut = " [line cut]"
		}
		fmt.Fprintf(&b, "%s:%d:%s%s\n", match.Path, match.Line, match.Text, cut)
	}
	for _, path := range found.Binaries {
		fmt.Fprintf(&b, "[binary file matches: %s]\n", path)
	}
	if found.More {
		fmt.Fprintf(&b, "[the first %d matches; there are more: narrow it with path, glob or a longer pattern]\n", len(found.Matches))
	}
	if b.Len() == 0 {
		b.WriteString("No matches.\n")
		if a.Path != "" {
			b.WriteString(ignoredHint)
		}
		if perlClass.MatchString(a.Pattern) {
			b.WriteString("[in a POSIX extended regular expression \\d is no digit: write [0-9], or [^0-9] for \\D]\n")
		}
	}
	if len(found.Unreadable) > 0 {
		fmt.Fprintf(&b, "[not readable, so not searched: %s]\n", strings.Join(found.Unreadable, ", "))
	}
	return strings.TrimSuffix(b.String(), "\n"), nil
}
