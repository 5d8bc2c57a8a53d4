package workspaces

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// How the scripts of this package end besides success, 1 and git's own 128 and 129.
const (
	exitBadInput   = 65 // a short commit id, a bad pattern
	exitNoPath     = 66 // the path to look at does not exist
	exitNoBase     = 67 // the recorded commit is no longer in the repository
	exitUnreadable = 68 // a diff that lacks files, which stderr names
)

// stderrMaxBytes bounds what an error quotes of git's stderr.
const stderrMaxBytes = 4096

// cleanEnvironment begins every script: git reads no configuration of the user, the image or
// the environment, asks nobody for a password and speaks English. What names a certificate
// authority stays. HOME does what GIT_CONFIG_GLOBAL does for git before 2.32, and hides .netrc.
// Only builtins: it costs no process but the subshell.
const cleanEnvironment = `
IFS='
'
set -f
for v in $(export -p); do
	case $v in
	'export GIT_SSL_CA'*) ;;
	'export GIT_'*)
		v=${v#export }
		v=${v%%=*}
		case $v in
		*[!A-Za-z0-9_]*) ;;
		*) unset "$v" ;;
		esac ;;
	esac
done
set +f
unset IFS LANGUAGE SSH_ASKPASS
export HOME=/dev/null XDG_CONFIG_HOME=/dev/null LC_ALL=C.UTF-8
export GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL=/dev/null GIT_ATTR_NOSYSTEM=1
export GIT_TERMINAL_PROMPT=0 GIT_ASKPASS= GIT_PAGER=cat GIT_LFS_SKIP_SMUDGE=1
`

// privateGitDir makes $base's repository readable without its configuration: a git dir of our
// own in the temporary directory with the objects as alternates and a copy of the index, so
// that whatever a command sets or hooks in .git changes nothing and runs nothing (C3). It ends with
// the script. cp -p, because git tells files that changed right after the index was written by
// the index's own time.
//
// sparseCheckout makes git ignore the skip-worktree mark of a file that is there. bigFileThreshold keeps
// git from loading a huge file to show it. Names that are a danger on other systems are none here.
//
// The attributes of the work tree, .git/info/attributes and .git/info/exclude hold: a diff shows what a
// commit would record, line endings normalised. They name drivers and filters, which no
// configuration defines.
//
// indexed runs git, with the index of $base where the model broke or removed its own.
const privateGitDir = `
d=$(mktemp -d "${TMPDIR:-/tmp}/carrel-git.XXXXXXXXXX") || exit
trap 'rm -rf "$d"' EXIT
trap 'exit 143' HUP INT TERM
cd -P . || exit
mkdir "$d/objects" "$d/objects/info" "$d/refs" "$d/info" || exit
if [ -d .git/objects ]; then
	printf '%s\n' "$PWD/.git/objects" >"$d/objects/info/alternates" || exit
fi
for f in index sharedindex.* info/exclude info/attributes; do
	for f in .git/$f; do
		[ ! -f "$f" ] || cp -p "$f" "$d/${f#.git/}" || exit
	done
done
empty_tree=4b825dc642cb6eb9a060e54bf8d69288fbee4904
empty_blob=e69de29bb2d1d6434b8b29ae775ad8c2e48c5391
format=sha1
if [ ${#base} = 64 ]; then
	empty_tree=6ef19b41225c5369f1c104d45d8d85efa9b057b53b14b4b9b939dd74decc5321
	empty_blob=473a0f4c3be8a93681a267e3b1e9a7dcda1185436fe141f7749120a303721813
	format=sha256
fi
printf '%s\n' '[core]' 'repositoryFormatVersion = 1' 'bare = false' \
	'quotePath = false' 'fsmonitor = false' 'untrackedCache = false' 'sparseCheckout = true' \
	'protectNTFS = false' 'bigFileThreshold = 64m' 'excludesFile = /dev/null' \
	'attributesFile = /dev/null' 'hooksPath = /dev/null' \
	'[extensions]' "objectFormat = $format" >"$d/config" || exit
if [ -n "$base" ]; then
	printf '%s\n' "$base" >"$d/HEAD"
else
	printf 'ref: refs/heads/main\n' >"$d/HEAD"
fi || exit
export GIT_DIR="$d" GIT_WORK_TREE="$PWD"

indexed() {
	[ -f "$d/index" ] && git "$@" 2>/dev/null && return
	rm -f "$d/index"
	[ -z "$base" ] || git read-tree "$base" 2>/dev/null || rm -f "$d/index"
	git "$@"
}
`

// runScript runs a script of this package with sh in the workspace's root, its arguments as
// $1 and so on: nothing is ever written into the script itself. out, unless nil, gets the
// standard output; where it fails, the script is stopped and its error returned. With wait, no write to out is under
// way any more when runScript returns; for an out that does not block.
//
// The error is Exec's own or out's. The exit code is the caller's to judge.
func runScript(ctx context.Context, ws Workspace, script string, out io.Writer, wait bool, timeout time.Duration, args ...string) (Result, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	command := Command{Args: append([]string{"sh", "-c", script, "carrel"}, args...), Timeout: timeout}
	if out == nil {
		return ws.Exec(ctx, command)
	}
	sink := &scriptSink{w: out, stop: cancel}
	command.Stdout = sink
	result, err := ws.Exec(ctx, command)
	if wait {
		sink.close()
	}
	if failed := sink.err.Load(); failed != nil {
		return result, *failed
	}
	return result, err
}

// A scriptSink writes to w until that fails or close is called.
type scriptSink struct {
	w    io.Writer
	stop func()
	err  atomic.Pointer[error]

	mu     sync.Mutex // held while w is written to
	closed bool
}

func (s *scriptSink) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return len(p), nil
	}
	n, err := s.w.Write(p)
	if err != nil {
		s.closed = true
		s.err.Store(&err)
		s.stop()
	}
	return n, err
}

func (s *scriptSink) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
}

// scriptFailure is the error of a script that ended as no caller expects.
func scriptFailure(what string, result Result) error {
	switch {
	case result.TimedOut:
		return fmt.Errorf("%s: timed out: %s", what, scriptStderr(result))
	case result.OOMKilled:
		return fmt.Errorf("%s: out of memory: %s", what, scriptStderr(result))
	}
	return fmt.Errorf("%s: exit code %d: %s", what, result.ExitCode, scriptStderr(result))
}

// scriptStderr is the end of a script's stderr, where git says what it died of.
func scriptStderr(result Result) string {
	s := strings.TrimSpace(result.Stderr)
	if len(s) > stderrMaxBytes {
		s = s[len(s)-stderrMaxBytes:]
	}
	return strings.ToValidUTF8(s, "")
}

// isCommitID says whether s is a full commit id, SHA-1 or SHA-256.
func isCommitID(s string) bool { return (len(s) == 40 || len(s) == 64) && isHex(s) }

func isHex(s string) bool {
	return strings.Trim(s, "0123456789abcdefABCDEF") == ""
}

// recordMaxBytes is longer than a path with what git prints before it can be.
const recordMaxBytes = 16_384

// A recordSplitter cuts a stream into records that end with NUL.
type recordSplitter struct {
	record []byte
}

// next takes bytes from p up to the end of the record under way. complete says that it
// reached that; record is valid until the next call.
func (s *recordSplitter) next(p []byte) (record, rest []byte, complete bool, err error) {
	if s.record == nil {
		s.record = make([]byte, 0, 256)
	}
	for i, c := range p {
		if c == 0 {
			s.record = append(s.record, p[:i]...)
			record, s.record = s.record, s.record[:0]
			return record, p[i+1:], true, checkRecord(len(record))
		}
	}
	if err := checkRecord(len(s.record) + len(p)); err != nil {
		return nil, nil, false, err
	}
	s.record = append(s.record, p...)
	return nil, nil, false, nil
}

func checkRecord(n int) error {
	if n > recordMaxBytes {
		return fmt.Errorf("malformed output of git: a record of more than %d bytes", recordMaxBytes)
	}
	return nil
}
