package workspaces

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
	"unicode/utf8"
)

// GrepOptions say what Grep looks for.
type GrepOptions struct {
	// Pattern is a POSIX extended regular expression, whatever it starts with. It is matched
	// line by line, so it has no line break; it is at most 16 KiB long.
	Pattern string

	Path, Glob string // as in ListOptions

	IgnoreCase   bool
	Max          int // matches; zero: 300
	MaxLineRunes int // characters of a line; zero: 500
}

// A GrepMatch is a line that matches.
type GrepMatch struct {
	Path string // raw, relative to the root
	Line int
	Text string // valid UTF-8, cut around the match's line beginning when too long
	Cut  bool   // Text is not the whole line
}

// GrepResult is what Grep found.
type GrepResult struct {
	Matches  []GrepMatch
	More     bool     // there are, or may be, more matches
	Binaries []string // binary files that match, at most 20

	// Unreadable are files that could not be searched, most often since their mode forbids it, at most
	// 20; those with control characters in their names may be missing. A directory that cannot be read
	// hides its untracked files without a word.
	Unreadable []string
}

const (
	grepMax          = 300
	grepMaxLineRunes = 500
	grepMaxBinaries  = 20
	grepPatternBytes = 16_384

	grepMaxUnreadable = "20"
	grepUnreadable    = "unreadable "

	// grepSpareLines is how many lines may go to binary files and to line breaks in
	// names before matches are missed.
	grepSpareLines = 256

	// grepNameBytes is room for the path and the number before a line.
	grepNameBytes = 4096 + 32
)

// grepScript searches all files of the private index, in the work tree, and prints at most $4 lines of at
// most $5 bytes each; what follows is not waited for. git grep has no way to tell a bad pattern
// from another failure, hence the second, which has nothing to search.
//
// git grep says which files it cannot read, and goes on: stderr then has their names, after grepUnreadable.
const grepScript = cleanEnvironment + `base=$1 pattern=$2 ignore_case=$3 lines=$4 bytes=$5 path=$6
shift 6
` + privateGitDir + diffFunctions + selectPaths + `
search() { git grep -z -n -E $ignore_case --no-color --no-textconv --no-recurse-submodules -e "$pattern" -- "$@"; }
index_tracked
index_untracked
{
	search "$@" 2>"$d/errors"
	echo $? >"$d/exit"
} | cut -b "1-$bytes" | head -n "$lines"
read -r code <"$d/exit"
case $code in
0 | 1 | 141)
	sed -n "s/^error: [^']*'\(.*\)': [^:']*\$/` + grepUnreadable + `\1/p" "$d/errors" | sort -u | head -n ` + grepMaxUnreadable + ` >&2
	exit 0
	;;
esac
cat "$d/errors" >&2
search ':(literal).git' >/dev/null 2>&1
[ $? != 128 ] || exit 65
exit "$code"
`

// Grep searches tracked and untracked files, git-ignored ones skipped, in one Exec. No match is
// an empty result; a bad pattern is ErrInvalidInput with git's message, a Path that
// does not exist fs.ErrNotExist. With another error the result holds what was found so far.
// Files are searched in the order of their names. One that cannot be read is never answered from its
// committed content: it is in Unreadable.
func Grep(ctx context.Context, workspace Workspace, options GrepOptions) (GrepResult, error) {
	switch pattern := options.Pattern; {
	case pattern == "":
		return GrepResult{}, fmt.Errorf("%w: the pattern is empty", ErrInvalidInput)
	case len(pattern) > grepPatternBytes:
		return GrepResult{}, fmt.Errorf("%w: the pattern is longer than %d bytes", ErrInvalidInput, grepPatternBytes)
	case strings.ContainsAny(pattern, "\n\x00"):
		return GrepResult{}, fmt.Errorf("%w: the pattern contains a line break or NUL; it is matched line by line", ErrInvalidInput)
	}
	path, globs, err := pathspecs(options.Path, options.Glob)
	if err != nil {
		return GrepResult{}, err
	}
	base, err := recordedCommit(workspace)
	if err != nil {
		return GrepResult{}, err
	}
	parser := newGrepParser(options)
	ignoreCase := ""
	if options.IgnoreCase {
		ignoreCase = "-i"
	}
	args := append([]string{
		base, options.Pattern, ignoreCase, strconv.Itoa(parser.maxLines), strconv.Itoa(grepNameBytes + parser.maxText), path,
	}, globs...)
	result, err := runScript(ctx, workspace, grepScript, parser, true, 0, args...)
	found := parser.finish()
	switch {
	case err != nil:
		return found, err
	case result.ExitCode == exitNoPath:
		return GrepResult{}, &fs.PathError{Op: "grep", Path: path, Err: fs.ErrNotExist}
	case result.ExitCode == exitBadInput:
		return GrepResult{}, fmt.Errorf("%w: bad pattern: %s", ErrInvalidInput, scriptStderr(result))
	case result.ExitCode != 0:
		return found, scriptFailure("grep", result)
	}
	for line := range strings.Lines(result.Stderr) {
		if name, ok := strings.CutPrefix(line, grepUnreadable); ok {
			found.Unreadable = append(found.Unreadable, strings.TrimSuffix(name, "\n"))
		}
	}
	return found, nil
}

// A grepParser reads "path NUL number NUL text" lines, and "Binary file path matches" lines, whose
// path may contain anything but NUL. It keeps the matches asked for.
//
// git does not mark which kind a line is: a text file whose name begins with "Binary file "
// and contains " matches" before a line break is taken for a binary one.
type grepParser struct {
	maxMatches int
	maxRunes   int
	maxText    int // bytes of a line that can matter
	maxLines   int // that the script prints

	state  grepState
	path   []byte
	number int
	text   []byte
	long   bool // text lacks bytes
	lines  int
	found  GrepResult
}

type grepState int

const (
	grepPath grepState = iota
	grepNumber
	grepText
)

func newGrepParser(options GrepOptions) *grepParser {
	p := &grepParser{maxMatches: options.Max, maxRunes: options.MaxLineRunes}
	if p.maxMatches <= 0 {
		p.maxMatches = grepMax
	}
	if p.maxRunes <= 0 {
		p.maxRunes = grepMaxLineRunes
	}
	// One character more than is shown, so that a longer line is known to be longer, and the
	// carriage return of a line that is not.
	p.maxText = (p.maxRunes+1)*utf8.UTFMax + 1
	p.maxLines = p.maxMatches + 1 + grepSpareLines
	return p
}

func (p *grepParser) Write(b []byte) (int, error) {
	n := len(b)
	for len(b) > 0 {
		switch p.state {
		case grepPath:
			b = p.takePath(b)
			if len(p.path) > recordMaxBytes {
				return n, fmt.Errorf("malformed output of git grep: a name of more than %d bytes", recordMaxBytes)
			}
		case grepNumber:
			c := b[0]
			b = b[1:]
			switch {
			case c >= '0' && c <= '9' && p.number < 1<<31:
				p.number = p.number*10 + int(c-'0')
			case c == 0 || c == ':':
				p.state = grepText
			default:
				return n, fmt.Errorf("malformed output of git grep: a line number with %q", c)
			}
		case grepText:
			b = p.takeText(b)
		}
	}
	return n, nil
}

func (p *grepParser) takePath(b []byte) []byte {
	for i, c := range b {
		switch c {
		case 0:
			p.path = append(p.path, b[:i]...)
			p.state = grepNumber
			return b[i+1:]
		case '\n':
			p.lines++
			p.path = append(p.path, b[:i+1]...)
			p.takeBinary()
			return b[i+1:]
		}
	}
	p.path = append(p.path, b...)
	return nil
}

func (p *grepParser) takeBinary() {
	name, ok := bytes.CutPrefix(p.path, []byte("Binary file "))
	if !ok {
		return
	}
	if name, ok = bytes.CutSuffix(name, []byte(" matches\n")); !ok {
		return
	}
	if len(p.found.Binaries) < grepMaxBinaries {
		p.found.Binaries = append(p.found.Binaries, string(name))
	}
	p.path = p.path[:0]
}

func (p *grepParser) takeText(b []byte) []byte {
	end := bytes.IndexByte(b, '\n')
	part, rest := b, []byte(nil)
	if end >= 0 {
		part, rest = b[:end], b[end+1:]
	}
	if room := p.maxText - len(p.text); len(part) > room {
		part, p.long = part[:room], true
	}
	p.text = append(p.text, part...)
	if end >= 0 {
		p.lines++
		p.takeMatch()
	}
	return rest
}

func (p *grepParser) takeMatch() {
	if len(p.found.Matches) < p.maxMatches {
		text := p.text
		if !p.long {
			text = bytes.TrimSuffix(text, []byte("\r"))
		}
		match := GrepMatch{Path: string(p.path), Line: p.number}
		match.Text, match.Cut = firstRunes(toValid(text), p.maxRunes)
		match.Cut = match.Cut || p.long
		p.found.Matches = append(p.found.Matches, match)
	} else {
		p.found.More = true
	}
	p.path, p.text, p.number, p.long, p.state = p.path[:0], p.text[:0], 0, false, grepPath
}

// finish returns what was found. A match under way does not count.
func (p *grepParser) finish() GrepResult {
	if p.lines >= p.maxLines {
		p.found.More = true
	}
	return p.found
}

// firstRunes cuts s after n characters.
func firstRunes(s string, n int) (_ string, cut bool) {
	for i := range s {
		if n == 0 {
			return s[:i], true
		}
		n--
	}
	return s, false
}
