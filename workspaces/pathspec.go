package workspaces

import (
	"fmt"
	"strings"
)

const (
	globMaxBytes        = 1024
	globMaxAlternatives = 64
)

// pathspecs returns path in clean form, empty for the root, and the pathspecs of git that match glob below
// it, none without a glob. git's own matching keeps what is listed and what is searched the
// same, and what does not match inside the workspace.
func pathspecs(path, glob string) (string, []string, error) {
	if path != "" {
		clean, err := CleanPath(path)
		if err != nil {
			return "", nil, err
		}
		if path = clean; path == "." {
			path = ""
		}
	}
	if glob == "" {
		return path, nil, nil
	}
	if len(glob) > globMaxBytes || strings.Contains(glob, "\x00") {
		return "", nil, fmt.Errorf("%w: glob is longer than %d bytes or contains NUL", ErrInvalidInput, globMaxBytes)
	}
	globs, ok := expandBraces(glob, nil)
	if !ok {
		return "", nil, fmt.Errorf("%w: glob has more than %d alternatives", ErrInvalidInput, globMaxAlternatives)
	}
	for i, glob := range globs {
		spec, err := pathspec(path, glob)
		if err != nil {
			return "", nil, err
		}
		globs[i] = spec
	}
	return path, globs, nil
}

func pathspec(path, glob string) (string, error) {
	if rest, ok := strings.CutPrefix(glob, Root+"/"); ok {
		glob = "/" + rest
	}
	anchored := strings.Contains(glob, "/")
	glob = strings.TrimLeft(glob, "/")
	for anchored && strings.HasPrefix(glob, "./") {
		glob = strings.TrimLeft(glob[1:], "/")
	}
	for part := range strings.SplitSeq(glob, "/") {
		if part == ".." {
			return "", fmt.Errorf("%w: glob %q leads out of the workspace", ErrInvalidInput, glob)
		}
	}
	if path != "" {
		glob = strings.TrimPrefix(glob, path+"/")
		path = globEscaper.Replace(path) + "/"
	}
	if !anchored {
		path += "**/"
	}
	return ":(glob)" + path + glob, nil
}

// globEscaper makes a glob of a name that matches just that.
var globEscaper = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`)

// expandBraces appends to globs what glob stands for when {a,b} in it, nested or not, is a or
// b. Braces without a comma or without their other half are ordinary characters, and so is what a \
// quotes. ok is false when there are more than globMaxAlternatives.
func expandBraces(glob string, globs []string) (_ []string, ok bool) {
	open, commas, end := braces(glob)
	if end < 0 {
		if len(globs) == globMaxAlternatives {
			return globs, false
		}
		return append(globs, glob), true
	}
	start := open + 1
	for _, stop := range append(commas, end) {
		if globs, ok = expandBraces(glob[:open]+glob[start:stop]+glob[end+1:], globs); !ok {
			return globs, false
		}
		start = stop + 1
	}
	return globs, true
}

// braces finds the first {a,b} of glob: its beginning, its own commas and its end; end is -1
// when there is none.
func braces(glob string) (open int, commas []int, end int) {
	for open = 0; open < len(glob); open++ {
		switch glob[open] {
		case '\\':
			open++
		case '{':
			if commas, end := closing(glob, open); end > 0 && len(commas) > 0 {
				return open, commas, end
			}
		}
	}
	return 0, nil, -1
}

// closing finds the commas and the end of the brace at open.
func closing(glob string, open int) (commas []int, end int) {
	depth := 0
	for i := open; i < len(glob); i++ {
		switch glob[i] {
		case '\\':
			i++
		case '{':
			depth++
		case ',':
			if depth == 1 {
				commas = append(commas, i)
			}
		case '}':
			if depth--; depth == 0 {
				return commas, i
			}
		}
	}
	return nil, -1
}
