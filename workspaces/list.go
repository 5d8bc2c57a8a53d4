package workspaces

import (
	"context"
	"fmt"
	"io/fs"
	"slices"
	"strings"
)

// ListOptions say which files ListFiles lists.
type ListOptions struct {
	// Path is a directory or file, whatever it is spelled like; empty: the root.
	Path string

	// Glob is matched against the path, counted from Path or from the root and, without a
	// slash, against the name alone. * and ? stop at slashes, ** does not; [a-z] and {a,b}
	// are alternatives, \ quotes. Empty: all. Where Path is a file it does not matter.
	Glob string

	Max int // zero: 1000
}

// A FileEntry is a name that ListFiles found.
type FileEntry struct {
	Path       string // raw, relative to the root
	Repository bool   // a nested git repository, not descended into
}

// FileList is what ListFiles found, sorted.
type FileList struct {
	Entries []FileEntry
	Total   int // how many there are; more than len(Entries) when cut
}

const listMax = 1000

// selectPaths turns $path and the globs in $@ into pathspecs. A glob within a file makes no sense.
const selectPaths = `
if [ -n "$path" ]; then
	[ -e "$path" ] || [ -h "$path" ] || exit 66
	[ -d "$path" ] && [ $# != 0 ] || set -- ":(literal)$path"
fi
`

// listScript prints for every untracked file "? name", for one below a tracked name that is a directory now "K
// name" as well, for every tracked one "H mode id stage<tab>name" (M in conflict, S not checked out), and after one that does not exist the same with R.
const listScript = cleanEnvironment + "base=$1 path=$2\nshift 2\n" + privateGitDir + selectPaths + `
indexed ls-files -z -t -s -c -d -o -k --exclude-standard -- "$@"
`

// ListFiles lists tracked and untracked files that exist, git-ignored ones skipped, in one Exec. The
// bytes of their names decide their order. A Path that does not exist is fs.ErrNotExist.
func ListFiles(ctx context.Context, workspace Workspace, options ListOptions) (FileList, error) {
	path, globs, err := pathspecs(options.Path, options.Glob)
	if err != nil {
		return FileList{}, err
	}
	base, err := recordedCommit(workspace)
	if err != nil {
		return FileList{}, err
	}
	parser := &listParser{max: options.Max}
	if parser.max <= 0 {
		parser.max = listMax
	}
	result, err := runScript(ctx, workspace, listScript, parser, true, 0, append([]string{base, path}, globs...)...)
	switch {
	case err != nil:
		return FileList{}, err
	case result.ExitCode == exitNoPath:
		return FileList{}, &fs.PathError{Op: "list", Path: path, Err: fs.ErrNotExist}
	case result.ExitCode != 0:
		return FileList{}, scriptFailure("list_files", result)
	}
	return parser.finish(), nil
}

// killedMax bounds how many directories a listParser remembers that stand where a tracked file was.
const killedMax = 10_000

// A listParser reads what listScript prints. It keeps the first max names.
type listParser struct {
	max     int
	records recordSplitter
	list    FileList
	killed  map[string]bool // what is tracked as a file and is a directory now
	tracked FileEntry       // not taken yet: a record may follow that says it is gone
}

func (p *listParser) Write(b []byte) (int, error) {
	n := len(b)
	for len(b) > 0 {
		record, rest, complete, err := p.records.next(b)
		if err != nil {
			return n, err
		}
		b = rest
		if complete {
			if err := p.take(string(record)); err != nil {
				return n, err
			}
		}
	}
	return n, nil
}

func (p *listParser) take(record string) error {
	if len(record) < 3 || record[1] != ' ' {
		return fmt.Errorf("malformed list of git: %q", record)
	}
	tag, rest := record[0], record[2:]
	switch tag {
	case '?':
		name, isRepository := strings.CutSuffix(rest, "/")
		p.add(FileEntry{Path: name, Repository: isRepository})
		return nil
	case 'K':
		for i, c := range []byte(rest) {
			if c == '/' && len(p.killed) < killedMax {
				if p.killed == nil {
					p.killed = make(map[string]bool)
				}
				p.killed[rest[:i]] = true
			}
		}
		return nil
	}
	mode, name, ok := strings.Cut(rest, "\t")
	if !ok {
		return fmt.Errorf("malformed list of git: %q", record)
	}
	if tag == 'R' {
		if p.tracked.Path == name {
			p.tracked = FileEntry{}
		}
		return nil
	}
	if name != p.tracked.Path {
		p.takeTracked()
	}
	if tag != 'S' {
		p.tracked = FileEntry{Path: name, Repository: strings.HasPrefix(mode, "160000 ")}
	}
	return nil
}

func (p *listParser) takeTracked() {
	if name := p.tracked.Path; name != "" && !p.killed[name] {
		p.add(p.tracked)
	}
	p.tracked = FileEntry{}
}

func (p *listParser) add(entry FileEntry) {
	p.list.Total++
	p.list.Entries = append(p.list.Entries, entry)
	if len(p.list.Entries) >= 2*p.max+64 {
		p.cut()
	}
}

func (p *listParser) cut() {
	slices.SortFunc(p.list.Entries, func(a, b FileEntry) int { return strings.Compare(a.Path, b.Path) })
	p.list.Entries = p.list.Entries[:min(p.max, len(p.list.Entries))]
}

func (p *listParser) finish() FileList {
	p.takeTracked()
	p.cut()
	return p.list
}
