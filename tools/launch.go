package tools

import (
	"strings"

	"github.com/carrel-dev/carrel/workspaces"
)

// argumentMaxBytes is the longest command that is given as an argument. Linux takes 128 KiB of
// them; what is below is room for those who quote it on its way.
const argumentMaxBytes = 64 << 10

// launch runs its argument with bash where there is one, else with sh. It says which on stderr
// and then takes itself out of the way: the shell is the same process, and its errors go
// where its output goes.
const launch = `if command -v bash >/dev/null 2>&1; then
  echo bash >&2
  exec 2>&1
  exec bash -c -- "$1"
fi
echo sh >&2
exec 2>&1
exec sh -c -- "$1"`

// launchFile does the same with a command that is too long for an argument and comes on
// stdin. It stays to remove the file, also after a TERM, which it lets the shell answer;
// what it may say itself goes to stderr, which nobody sees.
const launchFile = `file=$(mktemp "${TMPDIR:-/tmp}/script.XXXXXX") || exit
trap : HUP INT TERM
if cat >"$file"; then
  shell=sh
  if command -v bash >/dev/null 2>&1; then shell=bash; fi
  echo $shell >&2
  $shell "$file" </dev/null 2>&1
fi
code=$?
rm -f "$file"
exit $code`

// shellCommand is how a command as the model wrote it is run.
func shellCommand(command string) workspaces.Command {
	if len(command) > argumentMaxBytes {
		return workspaces.Command{Args: []string{"sh", "-c", launchFile, "carrel"}, Stdin: strings.NewReader(command)}
	}
	return workspaces.Command{Args: []string{"sh", "-c", launch, "carrel", command}}
}

// shellFound reads from stderr which shell ran the command. It is empty when none did; stderr
// then says why.
func shellFound(stderr string) (shell, complaint string) {
	switch line, rest, _ := strings.Cut(stderr, "\n"); line {
	case "bash", "sh":
		return line, rest
	}
	return "", stderr
}
