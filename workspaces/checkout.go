package workspaces

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// checkoutTimeout bounds a checkout whose caller's context does not end sooner.
const checkoutTimeout = 15 * time.Minute

// A CheckoutError is a step of a checkout that failed, with what git said.
type CheckoutError struct {
	Step       string // "init", "fetch", "checkout", ...
	Repository string
	Ref        string
	ExitCode   int
	Stderr     string // bounded, valid UTF-8, without credentials
}

func (e *CheckoutError) Error() string {
	of := ""
	if e.Repository != "" {
		of = " of " + e.Repository
	}
	return fmt.Sprintf("git %s%s failed with exit code %d: %s", e.Step, of, e.ExitCode, e.Stderr)
}

// The model's own commits need an identity. knownIdentity runs in the workspace's own environment.
const knownIdentity = `
identity=$(git config --global --get user.email 2>/dev/null)
`

// checkoutFunctions is what the scripts of a checkout share. A repository that is being
// made holds carrel-unfinished, so that a checkout whose process died is done again and one that ended is never
// undone, whatever the model made of it.
//
// A server that is silent for a minute is given up; nothing else bounds a slow one but the timeout.
const checkoutFunctions = `
step() { printf 'step %s\n' "$1"; }
g() {
	git -c core.hooksPath=/dev/null -c credential.helper= -c gc.auto=0 -c maintenance.auto=false \
		-c protocol.version=2 -c http.lowSpeedLimit=1 -c http.lowSpeedTime=60 "$@" >&2
}
begin() {
	step init
	if [ -f .git/carrel-unfinished ]; then
		rm -rf .git || exit
	fi
	mkdir .git && : >.git/carrel-unfinished || exit
}
init() {
	g init -q -b main --template= || exit
	export GIT_DIR=.git
	identify
}
identify() {
	if [ -z "$identity" ]; then
		g config user.name carrel && g config user.email carrel@localhost || exit
	fi
}
origin() {
	g remote add origin "$url" || exit
}
work_tree() {
	step checkout
	{
		printf 'update refs/carrel/base %s\n' "$commit"
		[ -z "$branch" ] || printf 'update refs/remotes/origin/%s %s\n' "$branch" "$commit"
		[ -z "$tag" ] || printf 'update refs/tags/%s %s\n' "$tag" "$object"
	} | g update-ref --stdin || exit
	if [ -n "$branch" ]; then
		g checkout -q -f -B "$branch" --track "refs/remotes/origin/$branch" -- || exit
	else
		g checkout -q -f --detach "$commit" -- || exit
	fi
}
finish() {
	rm .git/carrel-unfinished || exit
	printf 'commit %s\n' "$commit"
}
`

const initScript = knownIdentity + cleanEnvironment + checkoutFunctions + `
begin
init
printf 'commit\n'
`

// fetchScript makes the repository and fetches one commit of $1 in one connection: the branch or tag $2 as git
// resolves a name (a tag before a branch), a full commit id, or HEAD. Only a clone learns the
// name of HEAD's branch from that same connection; it is made inside .git, since the root need not be empty (the lost+found
// of a volume), and its contents moved.
//
// Names reach git fetch through its standard input: there "tag" is a branch like any other.
const fetchScript = knownIdentity + cleanEnvironment + checkoutFunctions + `
url=$1 ref=$2 short=$3 commit= branch= tag=
case $url in
file:*) export GIT_ALLOW_PROTOCOL=file ;;
*) export GIT_ALLOW_PROTOCOL=https ;;
esac
begin
if [ -z "$url" ]; then
	init
elif [ -z "$ref" ]; then
	step fetch
	g clone -q --depth=1 --no-tags --no-checkout --no-recurse-submodules --template= \
		-- "$url" .git/carrel-clone || exit
	mv .git/carrel-clone/.git/* .git/ && rm -r .git/carrel-clone || exit
	export GIT_DIR=.git
	g config --unset remote.origin.tagOpt
	g config remote.origin.fetch '+refs/heads/*:refs/remotes/origin/*' || exit
	identify
	commit=$(git rev-parse -q --verify 'HEAD^{commit}')
	branch=$(git symbolic-ref -q HEAD)
	branch=${branch#refs/heads/}
	if [ -n "$commit" ]; then
		work_tree
	elif refs=$(git ls-remote -q origin | head -c 1); [ -n "$refs" ]; then
		echo 'the remote has commits but its HEAD names none: name a branch, a tag or a full commit id' >&2
		exit 1
	fi
else
	init
	origin
	step fetch
	printf '%s\n' "$ref" | g fetch -q --depth=1 --no-tags --no-recurse-submodules --stdin origin || {
		code=$?
		[ -z "$short" ] || g ls-remote -q --exit-code origin "refs/heads/$ref" "refs/tags/$ref" || [ $? != 2 ] || exit 65
		exit $code
	}
	IFS='	' read -r object what <.git/FETCH_HEAD || exit
	commit=$(git rev-parse -q --verify "$object^{commit}") || {
		echo 'the ref names no commit' >&2
		exit 1
	}
	case $what in
	"branch '"*) branch=${what#*"'"} branch=${branch%%"' of "*} ;;
	"tag '"*) tag=${what#*"'"} tag=${tag%%"' of "*} ;;
	esac
	work_tree
fi
finish
`

const fetchedScript = cleanEnvironment + checkoutFunctions + `
url=$1 commit=$2 branch=$3 tag=
export GIT_DIR=.git
step init
origin
if [ -n "$commit" ]; then
	work_tree
elif [ -n "$branch" ]; then
	g symbolic-ref HEAD "refs/heads/$branch" || exit
fi
finish
`

// baseScript uses builtins only: it costs no process, and no setting of the repository
// matters. A root without .git is unfinished while nothing else is in it.
const baseScript = `
if [ ! -d .git ]; then
	for f in * .[!.]* ..?*; do
		[ "$f" = lost+found ] || [ ! -e "$f" ] || { echo 'commit '; exit; }
	done
	exit 0
fi
[ ! -e .git/carrel-unfinished ] || exit 0
commit=
if [ -f .git/refs/carrel/base ]; then
	read -r commit <.git/refs/carrel/base
elif [ -f .git/packed-refs ]; then
	while read -r id name; do
		[ "$name" != refs/carrel/base ] || { commit=$id; break; }
	done <.git/packed-refs
fi
printf 'commit %s\n' "$commit"
`

// checkout makes the repository of a new workspace and fetches ref of the remote, or its HEAD, inside the
// workspace (C1), in one Exec. repository and ref are in normal form; without a repository it
// is an empty one. The commit is empty without one: an empty remote.
//
// A branch stays a branch that tracks origin's; a tag and a commit are detached. The identity of later commits goes into
// the repository's configuration, unless the user's own has one; environment variables win over both.
// BaseRef is the commit. A workspace whose checkout did not end is checked out afresh.
func checkout(ctx context.Context, ws Workspace, repository, ref string) (commit string, err error) {
	if ref == "HEAD" {
		ref = ""
	}
	short := ""
	if isShortID(ref) {
		short = "short"
	}
	result, err := runScript(ctx, ws, fetchScript, nil, false, checkoutTimeout, repository, ref, short)
	if err == nil && result.ExitCode == exitBadInput {
		return "", shortIDError(repository, ref)
	}
	if err := checkoutFailure(result, err, repository, ref); err != nil {
		return "", err
	}
	_, commit, _ = report(result.Stdout)
	return commit, nil
}

// isShortID says that a ref may be a short commit id, if it is neither a branch nor a tag.
func isShortID(ref string) bool { return isHex(ref) && len(ref) >= 4 && !isCommitID(ref) }

func shortIDError(repository, ref string) error {
	return fmt.Errorf("%w: %q is neither a branch nor a tag of %s; of a commit, use the full commit id", ErrInvalidInput, ref, repository)
}

// initRepository makes the repository that a commit fetched on the host is written into; checkoutFetched comes after it.
func initRepository(ctx context.Context, ws Workspace) error {
	result, err := runScript(ctx, ws, initScript, nil, false, checkoutTimeout)
	return checkoutFailure(result, err, "", "")
}

// checkoutFetched checks out a commit whose objects are there: as that branch of origin or, when branch
// is empty, detached. Without a commit the remote is empty. In either case the
// checkout has ended for readBase.
func checkoutFetched(ctx context.Context, ws Workspace, repository, ref, commit, branch string) error {
	result, err := runScript(ctx, ws, fetchedScript, nil, false, checkoutTimeout, repository, commit, branch)
	return checkoutFailure(result, err, repository, ref)
}

// readBase reads what a workspace was checked out at. found is false where no checkout has ended; commit is empty where
// that was one without a commit, or the model removed BaseRef.
func readBase(ctx context.Context, ws Workspace) (commit string, found bool, err error) {
	result, err := runScript(ctx, ws, baseScript, nil, false, 0)
	if err != nil {
		return "", false, err
	}
	if result.ExitCode != 0 {
		return "", false, scriptFailure("read "+BaseRef, result)
	}
	_, commit, found = report(result.Stdout)
	return commit, found, nil
}

// report reads what a script of a checkout printed: the last step it began and, when it
// finished, the commit.
func report(stdout string) (step, commit string, finished bool) {
	for line := range strings.Lines(stdout) {
		word, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		switch word {
		case "step":
			step = value
		case "commit":
			finished = true
			if isCommitID(value) {
				commit = value
			}
		}
	}
	return step, commit, finished
}

// checkoutFailure is err, or the error of a script that did not finish.
func checkoutFailure(result Result, err error, repository, ref string) error {
	if err != nil {
		return err
	}
	step, _, finished := report(result.Stdout)
	if finished && result.ExitCode == 0 {
		return nil
	}
	failure := &CheckoutError{Step: step, Repository: repository, Ref: ref, ExitCode: result.ExitCode, Stderr: scriptStderr(result)}
	if step == "" {
		failure.Step = "init"
	}
	if result.TimedOut {
		failure.Stderr = strings.TrimSpace(failure.Stderr + "\ntimed out")
	}
	return failure
}
