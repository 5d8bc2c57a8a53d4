package tools

import (
	"context"
	_ "embed"
	"fmt"
	"strings"

	"github.com/carrel-dev/carrel/workspaces"
)

//go:embed grep.md
var grepText string

const (
	grepMaxMatches   = 300
	grepMaxLineRunes = 500
)

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
		return "No matches.", nil
	}
	return strings.TrimSuffix(b.String(), "\n"), nil
}
