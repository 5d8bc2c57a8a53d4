package workspaces

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"io/fs"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	// statusMaxBytes bounds Changed.Status and what is kept of the names of changed files.
	statusMaxBytes = 8 << 20

	// diffReadBytes bounds what Changes reads of a diff, most of which it may leave out.
	diffReadBytes = 16 << 20
)

// diffFunctions compare $base, or the empty tree, with the work tree through the private index.
//
// Untracked files are put into it without their content, as entries that look modified, so that nothing is
// hashed into objects. Files git was told to assume unchanged count like all others, files in conflict as they are.
// Nested repositories, and what lies below a .git of any spelling, stay out.
//
// git diff gives up at a file it cannot read. Where there can be such files (we are not root), index_readable
// finds them, keeps them out, and names them in $d/unreadable. A name with a line break is taken to be
// readable. It leaves those that are tracked as if they were unchanged, so git would answer from their
// committed content: nothing but compare may follow it.
//
// A submodule is compared by its commit alone; git would run commands with its configuration otherwise.
const diffFunctions = `
compare_with() {
	tree=$base found=base
	if [ -z "$base" ]; then
		tree=$empty_tree found=none
	elif ! git cat-file -e "$base^{commit}" 2>/dev/null; then
		tree=$empty_tree found=lost
		printf 'ref: refs/heads/main\n' >"$d/HEAD"
	fi
}
index_tracked() {
	indexed ls-files -z -v -c -o --exclude-standard >"$d/names" || exit
	LC_ALL=C sed -z -n 's/^h //p' "$d/names" >"$d/assumed" || exit
	[ ! -s "$d/assumed" ] || git update-index -z --no-assume-unchanged --stdin <"$d/assumed" || exit
	LC_ALL=C sed -z -n -e '/^[?Mm] /!d' -e '/\/$/d' -e 's/^. //' \
		-e '/^\.[gG][iI][tT]\(\/\|$\)/d' -e '/\/\.[gG][iI][tT]\(\/\|$\)/d' -e p \
		"$d/names" >"$d/others" || exit
}
index_untracked() {
	LC_ALL=C sed -z "s/^/100644 $empty_blob 0	/" "$d/others" | git update-index -z --add --replace --index-info || exit
}
unreadable() {
	tr '\n\0' '\001\n' | while IFS= read -r f; do
		case $f in *"$ctrl_a"*) continue ;; esac
		[ -r "$f" ] || [ -h "$f" ] || [ ! -e "$f" ] || printf '%s\n' "$f"
	done | tr '\n' '\0'
}
index_readable() {
	: >"$d/unreadable"
	(umask 777 && : >"$d/probe")
	if [ ! -r "$d/probe" ]; then
		ctrl_a=$(printf '\001')
		git diff-files -z --name-only --ignore-submodules=all | unreadable >"$d/unreadable1"
		unreadable <"$d/others" >"$d/unreadable2"
		cat "$d/unreadable1" "$d/unreadable2" >"$d/unreadable" || exit
	fi
	index_untracked
	if [ -s "$d/unreadable" ]; then
		git update-index -z --assume-unchanged --stdin <"$d/unreadable1" || exit
		git update-index -z --force-remove --stdin <"$d/unreadable2" || exit
	fi
}
compare() {
	git diff --no-ext-diff --no-textconv --no-color --src-prefix=a/ --dst-prefix=b/ --find-renames -l 400 \
		--ignore-submodules=dirty "$@" "$tree" --
}
`

const diffScript = cleanEnvironment + "base=$1\n" + privateGitDir + diffFunctions + `
compare_with
if [ $found = lost ]; then
	exit 67
fi
index_tracked
index_readable
compare -p --binary || exit
if [ -s "$d/unreadable" ]; then
	tr '\0' '\n' <"$d/unreadable" >&2
	exit 68
fi
`

// changesScript prints, each ended by NUL: which tree it compares with; the status; an empty
// record; the files that cannot be read; an empty record; the changed files as git's --raw; and, if there are
// any, an empty record and their patch.
const changesScript = cleanEnvironment + "base=$1 limit=$2\n" + privateGitDir + diffFunctions + `
compare_with
index_tracked
printf '%s\0' "$found"
git status --porcelain=v1 -z --untracked-files=all --ignore-submodules=dirty || exit
printf '\0'
index_readable
cat "$d/unreadable" || exit
printf '\0'
{
	compare --raw -z -p
	echo $? >"$d/exit"
} | head -c "$limit"
read -r code <"$d/exit"
[ "$code" = 141 ] || exit "$code"
`

// Diff writes the whole patch of what changed since the checkout to w, uncapped and ready for git apply,
// binary files included: untracked and committed work, the repository's index untouched. It is
// for the caller; a model gets Changes.
//
// The other side is the recorded commit (Info.Commit), the empty tree without one. A commit that is no
// longer in the repository, since .git was removed or replaced, is fs.ErrNotExist.
// Files that cannot be read are left out and named in an error that matches fs.ErrPermission;
// the rest of the patch is complete. A failure of w is returned as it is. When
// another error is returned while w blocks, that write is still under way.
func Diff(ctx context.Context, workspace Workspace, w io.Writer) error {
	base, err := recordedCommit(workspace)
	if err != nil {
		return err
	}
	result, err := runScript(ctx, workspace, diffScript, w, false, 0, base)
	switch {
	case err != nil:
		return err
	case result.ExitCode == exitNoBase:
		return fmt.Errorf("diff: commit %s is no longer in the repository: %w", base, fs.ErrNotExist)
	case result.ExitCode == exitUnreadable:
		return fmt.Errorf("diff: left out: %q: %w", scriptStderr(result), fs.ErrPermission)
	case result.ExitCode != 0:
		return scriptFailure("diff", result)
	}
	return nil
}

// recordedCommit is what a workspace's changes are counted from: a full commit id, or empty.
func recordedCommit(workspace Workspace) (string, error) {
	base := workspace.Info().Commit
	if base != "" && !isCommitID(base) {
		return "", fmt.Errorf("the workspace's recorded commit %q is no commit id", base)
	}
	return base, nil
}

// ChangesOptions bound Changes.
type ChangesOptions struct {
	MaxBytes int // of Diff; zero: OutputMaxBytes
}

// Changed is what a run changed since the recorded commit (the empty tree without one).
type Changed struct {
	// Status has one line a file, as git status --short prints it, but counted from the recorded commit: a
	// file committed since then is there as well, as in the index. Every untracked
	// file has its line, a nested repository one that ends with a slash. It is never cut. Names are
	// raw, but quoted as in Go where a control character or invalid UTF-8 would spoil the line.
	Status string

	// Diff is unified, valid UTF-8, cut at file borders: a file that does not fit is left out, a
	// later one that does is there.
	Diff string

	// Omitted are the raw names of files whose diff did not fit, in order; Unreadable those of changed
	// files that cannot be read, which Diff lacks as well.
	Omitted, Unreadable []string

	// BaseLost: the recorded commit is no longer in the repository, since .git was removed or
	// replaced. All is compared with the empty tree instead.
	BaseLost bool
}

// Changes returns everything the run changed since the recorded commit, committed or not, in one Exec. git's own
// ignore rules and attributes hold, no configuration of the repository does. A status of more than 8 MiB is ErrTooLarge.
func Changes(ctx context.Context, workspace Workspace, options ChangesOptions) (Changed, error) {
	base, err := recordedCommit(workspace)
	if err != nil {
		return Changed{}, err
	}
	if options.MaxBytes <= 0 {
		options.MaxBytes = OutputMaxBytes
	}
	parser := &changesParser{patch: patchCutter{max: options.MaxBytes}, limit: diffReadBytes}
	result, err := runScript(ctx, workspace, changesScript, parser, true, 0, base, strconv.Itoa(diffReadBytes))
	if err == nil && result.ExitCode != 0 {
		err = scriptFailure("git_diff", result)
	}
	if err != nil {
		return Changed{}, err
	}
	return parser.finish()
}

// A changesParser reads what changesScript prints.
type changesParser struct {
	records recordSplitter
	state   changesState
	limit   int // of the raw records and the patch together, in bytes
	read    int // of these

	base    string // "base", "none", "lost"
	status  strings.Builder
	renamed string // status line that lacks the old name
	pending int    // names that a raw record still lacks
	kept    int    // bytes of names
	patch   patchCutter

	unreadable []string
}

type changesState int

const (
	changesBase changesState = iota
	changesStatus
	changesUnreadable
	changesRaw
	changesPatch
)

func (p *changesParser) Write(b []byte) (int, error) {
	n := len(b)
	for len(b) > 0 {
		if p.state == changesPatch {
			p.read += len(b)
			_, err := p.patch.Write(b)
			return n, err
		}
		record, rest, complete, err := p.records.next(b)
		if err != nil {
			return n, err
		}
		if p.state == changesRaw {
			p.read += len(b) - len(rest)
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

func (p *changesParser) take(record string) error {
	p.kept += len(record)
	if p.kept > statusMaxBytes {
		return fmt.Errorf("%w: the names of the changed files are longer than %d bytes", ErrTooLarge, statusMaxBytes)
	}
	if record == "" && p.renamed == "" && p.pending == 0 {
		p.state++
		return nil
	}
	switch p.state {
	case changesBase:
		p.base = record
		p.state = changesStatus
		return nil
	case changesStatus:
		return p.takeStatus(record)
	case changesUnreadable:
		p.unreadable = append(p.unreadable, record)
		return nil
	default:
		return p.takeRaw(record)
	}
}

// takeStatus turns "XY new" and, after a rename, "old" into a line.
func (p *changesParser) takeStatus(record string) error {
	if p.renamed != "" {
		fmt.Fprintf(&p.status, "%s %s -> %s\n", p.renamed[:2], quoteName(record), quoteName(p.renamed[3:]))
		p.renamed = ""
		return nil
	}
	if len(record) < 4 || record[2] != ' ' {
		return fmt.Errorf("malformed status of git: %q", record)
	}
	if strings.ContainsAny(record[:2], "RC") {
		p.renamed = record
		return nil
	}
	fmt.Fprintf(&p.status, "%s %s\n", record[:2], quoteName(record[3:]))
	return nil
}

// takeRaw turns ":modes ids status", "name" and, after a rename, "new name" into a file.
func (p *changesParser) takeRaw(record string) error {
	if p.pending == 0 {
		fields := strings.Fields(record)
		if len(fields) != 5 || record[0] != ':' {
			return fmt.Errorf("malformed diff of git: %q", record)
		}
		p.pending = 1
		if strings.ContainsAny(fields[4][:1], "RC") {
			p.pending = 2
		}
		p.patch.files = append(p.patch.files, changedFile{})
		return nil
	}
	file := &p.patch.files[len(p.patch.files)-1]
	if file.from == "" {
		file.from = record
	}
	file.name = record
	p.pending--
	return nil
}

func (p *changesParser) finish() (Changed, error) {
	whole := p.read < p.limit
	if p.state < changesRaw || p.state == changesRaw && (!whole || p.pending != 0 || len(p.patch.files) > 0) {
		return Changed{}, fmt.Errorf("malformed diff of git: it ends early")
	}
	if err := p.patch.finish(whole); err != nil {
		return Changed{}, err
	}
	return Changed{
		Status:     p.status.String(),
		Diff:       p.patch.out.String(),
		Omitted:    p.patch.omitted,
		Unreadable: p.unreadable,
		BaseLost:   p.base == "lost",
	}, nil
}

// quoteName is name, or name quoted as in Go where it would spoil a line of text.
func quoteName(name string) string {
	if utf8.ValidString(name) && !strings.ContainsFunc(name, unicode.IsControl) {
		return name
	}
	return strconv.Quote(name)
}

type changedFile struct {
	from, name string // equal, unless renamed
}

// header is the line that git begins the file's patch with.
func (f changedFile) header() string {
	return patchHeader + quotePath("a/"+f.from) + " " + quotePath("b/"+f.name) + "\n"
}

const patchHeader = "diff --git "

// quotePath quotes a path as git does in a patch with core.quotePath off.
func quotePath(path string) string {
	quoted := false
	var b strings.Builder
	for i := 0; i < len(path); i++ {
		c := path[i]
		if short := strings.IndexByte("\a\b\t\n\v\f\r\"\\", c); short >= 0 {
			quoted = true
			b.WriteByte('\\')
			b.WriteByte(`abtnvfr"\`[short])
		} else if c < ' ' || c == 0x7f {
			quoted = true
			fmt.Fprintf(&b, `\%03o`, c)
		} else {
			b.WriteByte(c)
		}
	}
	if quoted {
		return `"` + b.String() + `"`
	}
	return path
}

// A patchCutter keeps the files of a patch that fit into max bytes. It holds no more than that and a line.
type patchCutter struct {
	files []changedFile // what the patch is of, in its order
	max   int

	line    []byte // the line under way, while it may be a header
	passing bool   // the line under way is none
	next    int    // the file after the one under way
	chunk   []byte // what is kept of the file under way
	over    bool   // it does not fit
	out     strings.Builder
	omitted []string
}

func (p *patchCutter) Write(b []byte) (int, error) {
	n := len(b)
	for len(b) > 0 {
		end := bytes.IndexByte(b, '\n') + 1
		part := b[:end]
		if end == 0 {
			part = b
		}
		b = b[len(part):]
		if !p.passing {
			p.line = append(p.line, part...)
			part = p.line
			k := min(len(part), len(patchHeader))
			isHeader := string(part[:k]) == patchHeader[:k]
			if isHeader && end == 0 {
				if len(p.line) > 8*recordMaxBytes { // two names, each byte maybe written as four
					return n, fmt.Errorf("malformed diff of git: a header of more than %d bytes", 8*recordMaxBytes)
				}
				continue
			}
			if isHeader && k == len(patchHeader) {
				if err := p.begin(string(part)); err != nil {
					return n, err
				}
			}
			p.line = p.line[:0]
		}
		p.passing = end == 0
		if p.next == 0 {
			return n, fmt.Errorf("malformed diff of git: a patch of no file")
		}
		if len(p.chunk)+len(part) > p.max {
			p.over, p.chunk = true, p.chunk[:0]
		}
		if !p.over {
			p.chunk = append(p.chunk, part...)
		}
	}
	return n, nil
}

// begin notices that header starts another file's patch. A file whose type changed has two,
// one whose content is the same once its attributes were applied may have none.
func (p *patchCutter) begin(header string) error {
	if p.next > 0 && p.files[p.next-1].header() == header {
		return nil
	}
	p.end()
	for ; p.next < len(p.files); p.next++ {
		if p.files[p.next].header() == header {
			p.next++
			return nil
		}
	}
	return fmt.Errorf("malformed diff of git: unexpected %q", header)
}

// end takes the file under way, or leaves it out.
func (p *patchCutter) end() {
	if p.next == 0 {
		return
	}
	text := toValid(p.chunk)
	if p.over || p.out.Len()+len(text) > p.max {
		p.omitted = append(p.omitted, p.files[p.next-1].name)
	} else {
		p.out.WriteString(text)
	}
	p.chunk, p.over = p.chunk[:0], false
}

// finish ends the patch. Unless it is whole, the file under way and all after it are left out.
func (p *patchCutter) finish(whole bool) error {
	if whole {
		if len(p.line) > 0 || p.passing {
			return fmt.Errorf("malformed diff of git: it ends early")
		}
		p.end()
		return nil
	}
	p.over = true
	p.end()
	for _, file := range p.files[p.next:] {
		p.omitted = append(p.omitted, file.name)
	}
	return nil
}
