package tools

import (
	"strings"

	"github.com/carrel-dev/carrel/workspaces"
)

// argumentMaxBytes is the longest command that is given as an argument. Linux takes 128 KiB of
// them; what is below is room for those who quote it on its way.
const argumentMaxBytes = 64 << 10

// launch runs its argument with bash where there is one, else with sh. It says which in a first line
// and then takes itself out of the way: the shell is the same process, and its errors go
// where its output goes.
const launch = `if command -v bash >/dev/null 2>&1; then
  echo bash
  exec 2>&1
  exec bash -c -- "$1"
fi
echo sh
exec 2>&1
exec sh -c -- "$1"`

// launchFile does the same with a command that is too long for an argument and comes on
// stdin; its first line has the script's path as well. It stays to remove the file, also after a TERM, which it
// lets the shell answer; what it may say itself, such as "Terminated", goes to stderr.
const launchFile = `file=$(mktemp "${TMPDIR:-/tmp}/script.XXXXXX") || exit
trap : HUP INT TERM
if cat >"$file"; then
  shell=sh
  if command -v bash >/dev/null 2>&1; then shell=bash; fi
  echo "$shell $file"
  (exec "$shell" "$file" </dev/null 2>&1)
fi
code=$?
rm -f "$file"
exit $code`

// shellCommand is how a command as the model wrote it is run.
func shellCommand(command string) workspaces.Command {
	if strings.HasSuffix(command, `\`) {
		command += "\n" // as in a script; an argument's last backslash would stand for itself
	}
	if len(command) > argumentMaxBytes {
		return workspaces.Command{Args: []string{"sh", "-c", launchFile, "carrel"}, Stdin: strings.NewReader(command)}
	}
	return workspaces.Command{Args: []string{"sh", "-c", launch, "carrel", command}}
}

// launched reads the first line: which shell runs the command, and the path of its script if it has
// one. ok is false where a launch did not write it.
func launched(line string) (shell, script string, ok bool) {
	shell, script, _ = strings.Cut(line, " ")
	return shell, script, shell == "bash" || shell == "sh"
}
