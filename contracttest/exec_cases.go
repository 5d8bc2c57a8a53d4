package contracttest

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/carrel-dev/carrel/workspaces"
)

func execCases() []Case {
	return []Case{
		{ID: "W1-argv", Rule: "A command is argv: every argument reaches the program byte for byte, no shell looks at it.", run: argvCase},
		{ID: "W1-result", Rule: "A non-zero exit is data, and the result holds both streams apart, their totals and the duration.", run: resultCase},
		{ID: "W1-env", Rule: "A command's additions to the environment are there, for that command alone.", run: commandEnvCase},
		{ID: "W10-exit-codes", Rule: "The exit code is the command's own, 128+n for a death by signal n, 127 for not found, 126 for not executable.", run: exitCodesCase},
		{ID: "C30-no-state-between-calls", Rule: "No command changes directory, environment or options of the next.", run: noStateCase},
		{ID: "C34-scripts-as-typed", Rule: "Here-documents, comments, open quotes and syntax errors do what sh alone makes of them; nothing of a wrapper shows.", run: scriptsCase},
		{ID: "W12-default-signals", Rule: "A command starts with default signal handling.", run: defaultSignalsCase},
		{ID: "W12-descriptors", Rule: "A command starts with descriptors 0 to 2 alone.", run: descriptorsCase},
		{ID: "W13-dir", Rule: "Dir is relative to the root or below /workspace; it may be a link that stays inside.", run: dirCase},
		{ID: "W13-no-dir", Rule: "What is no directory of the workspace is an error, not a result.", run: noDirCase},
		{ID: "W19-results-do-not-mix", Rule: "Commands at the same time each get their own output and exit code.", run: resultsDoNotMixCase},
		{ID: "M12-runs-once", Rule: "A command is run once, whatever its exit code.", run: runsOnceCase},
		{ID: "P3-environment", Rule: "A command sees no variable of the host, but WORKSPACE, CI, a HOME it can write and a temporary directory.", run: environmentCase},
	}
}

func argvCase(f *fixture) {
	w := f.workspace()
	args := []string{"", "a b", `it's "$HOME" $(id) ` + "`id`", `\n\t\\`, "*", "new\nline", "-n", "--", "café €", "%s", ";exit 3;", "'", `"`, "\x01\x1b", "~", "a=b", strings.Repeat("x", 100_000)}
	result := f.exec(w, workspaces.Command{Args: append([]string{"sh", "-c", `printf '%s|' "$#"; for a; do printf '%s|' "$a"; done >args; printf '%s' "$0"`, "zero"}, args...)})
	require.Zero(f, result.ExitCode, result.Stderr)
	require.Equal(f, fmt.Sprintf("%d|zero", len(args)), result.Stdout)
	require.Equal(f, strings.Join(args, "|")+"|", string(f.read(w, "args")))

	// Without a shell that could have done it.
	require.Equal(f, "[$HOME][*][a  b]", f.exec(w, workspaces.Command{Args: []string{"printf", "[%s]", "$HOME", "*", "a  b"}}).Stdout)
}

func resultCase(f *fixture) {
	w := f.workspace()
	for _, code := range []int{0, 1, 3, 255} {
		began := time.Now()
		result := f.exec(w, sh("printf out; printf error >&2; sleep 0.1; exit "+strconv.Itoa(code)))
		took := time.Since(began)
		require.Equal(f, code, result.ExitCode)
		require.Equal(f, "out", result.Stdout)
		require.Equal(f, "error", result.Stderr)
		require.EqualValues(f, 3, result.StdoutBytes)
		require.EqualValues(f, 5, result.StderrBytes)
		require.False(f, result.StdoutTruncated || result.StderrTruncated || result.TimedOut || result.OOMKilled, "%+v", result)
		require.GreaterOrEqual(f, result.Duration, 100*time.Millisecond)
		require.LessOrEqual(f, result.Duration, took)
	}
}

func commandEnvCase(f *fixture) {
	w := f.workspace()
	command := sh(`printf '%s|' "$A" "$B" "$C" "$HOME"`)
	command.Env = map[string]string{"A": "1", "B": "two words\nand 'a' \"line\" $A", "C": "", "HOME": "/elsewhere"}
	require.Equal(f, "1|two words\nand 'a' \"line\" $A||/elsewhere|", f.exec(w, command).Stdout)
	require.Equal(f, "[][]", f.shell(w, `printf '[%s]' "$A" "$B"`))
	require.NotEqual(f, "/elsewhere", f.shell(w, `printf %s "$HOME"`))
}

func exitCodesCase(f *fixture) {
	w := f.workspace()
	f.shell(w, `printf '#!/bin/sh\nexit 9\n' >script; cp script noexec; chmod 755 script; chmod 644 noexec; mkdir dir`)
	for _, c := range []struct {
		args []string
		code int
	}{
		{[]string{"true"}, 0},
		{[]string{"false"}, 1},
		{[]string{"./script"}, 9},
		{[]string{"sh", "-c", "kill -9 $$"}, 137},
		{[]string{"sh", "-c", "kill -TERM $$"}, 143},
		{[]string{"sh", "-c", "kill -USR1 $$"}, 138},
		{[]string{"nosuchcmd"}, 127},
		{[]string{"-x"}, 127},
		{[]string{"./nosuch"}, 127},
		{[]string{"/no/such/program"}, 127},
		{[]string{"./noexec"}, 126},
		{[]string{"./dir"}, 126},
		{[]string{"sh", "-c", "nosuchcmd"}, 127},
		{[]string{"sh", "-c", "./noexec"}, 126},
	} {
		result := f.exec(w, workspaces.Command{Args: c.args})
		require.Equal(f, c.code, result.ExitCode, "%q: %s", c.args, result.Stderr)
		require.False(f, result.TimedOut, "%q", c.args)
		require.Empty(f, result.Stdout, "%q", c.args)
		if c.code == 126 || c.code == 127 {
			require.NotEmpty(f, result.Stderr, "%q: the reason", c.args)
		}
	}
}

func noStateCase(f *fixture) {
	w := f.workspace()
	root := f.shell(w, "pwd -P")
	require.Equal(f, strings.TrimSpace(root)+"/sub\n", f.shell(w, "mkdir sub && cd sub && pwd -P"))
	require.Equal(f, root, f.shell(w, "pwd -P"))
	f.shell(w, "export A=1; umask 077")
	require.Equal(f, "[]", f.shell(w, `echo x >f; printf '[%s]' "$A"`))
	require.Equal(f, "644", strings.TrimSpace(f.shell(w, "stat -c %a f")))
	result := f.exec(w, sh("set -eu; false; echo no"))
	require.Equal(f, 1, result.ExitCode)
	require.Empty(f, result.Stdout)
	require.Equal(f, 3, f.exec(w, sh("exit 3")).ExitCode)
	require.Equal(f, "on\n", f.shell(w, "false; echo on"))
}

func scriptsCase(f *fixture) {
	w := f.workspace()
	f.shell(w, "cat > f <<'EOF'\nline 1\n  EOF\nlast\nEOF")
	require.Equal(f, "line 1\n  EOF\nlast\n", string(f.read(w, "f")))
	for _, c := range []struct {
		script, out string
		code        int
	}{
		{"echo hi # note", "hi\n", 0},
		{"exec echo bye", "bye\n", 0},
		{"trap 'echo t' EXIT; exit 5", "t\n", 5},
		{"exec 1>&- 2>&-; exit 4", "", 4},
		{"cat <<X", "", 0},
		{"", "", 0},
	} {
		result := f.soon(w, sh(c.script))
		require.Equal(f, c.out, result.Stdout, c.script)
		require.Equal(f, c.code, result.ExitCode, "%s: %s", c.script, result.Stderr)
	}
	require.Contains(f, []string{"hi\n", "hi \\\n"}, f.shell(w, `echo hi \`)) // bash, dash
	for _, script := range []string{"echo 'open", "}", ")", "if", "case x in"} {
		result := f.soon(w, sh(script))
		require.NotZero(f, result.ExitCode, script)
		require.Empty(f, result.Stdout, script)
		require.NotEmpty(f, result.Stderr, script)
	}
}

func defaultSignalsCase(f *fixture) {
	w := f.workspace()
	for signal, number := range map[string]int{"HUP": 1, "INT": 2, "QUIT": 3, "PIPE": 13, "ALRM": 14, "TERM": 15, "USR2": 12} {
		require.Equal(f, 128+number, f.exec(w, sh("kill -"+signal+" $$; exit 0")).ExitCode, "of signal %s", signal)
	}
	// A list of ignored or blocked signals that no shell had its hands in. Signals from 32 on
	// are the C library's.
	status := f.exec(w, workspaces.Command{Args: []string{"cat", "/proc/self/status"}}).Stdout
	for line := range strings.Lines(status) {
		name, mask, _ := strings.Cut(strings.TrimSpace(line), ":\t")
		if name == "SigIgn" || name == "SigBlk" {
			bits, err := strconv.ParseUint(mask, 16, 64)
			require.NoError(f, err)
			require.Zero(f, uint32(bits)<<1, "%s: %s", name, mask)
		}
	}
	require.Contains(f, status, "SigIgn")
}

// openDescriptors uses nothing that would open one.
const openDescriptors = `i=0; while [ $i -lt 256 ]; do [ ! -e /proc/self/fd/$i ] || printf '%s ' $i; i=$((i+1)); done`

func descriptorsCase(f *fixture) {
	w := f.workspace()
	require.Equal(f, "0 1 2 ", f.shell(w, openDescriptors))
	command := sh(openDescriptors)
	command.Stdin = strings.NewReader("x")
	require.Equal(f, "0 1 2 ", f.exec(w, command).Stdout)
}

func dirCase(f *fixture) {
	w := f.workspace()
	f.shell(w, "mkdir -p a/b -- '-n' 'sp ace'; ln -s a/b inside")
	root := strings.TrimSpace(f.shell(w, "pwd -P"))
	for dir, at := range map[string]string{
		"": "", ".": "", "a/b": "/a/b", "inside": "/a/b", "./a/../a": "/a", "-n": "/-n", "sp ace": "/sp ace",
		"/workspace": "", "/workspace/a/b": "/a/b",
	} {
		command := sh(`pwd -P; printf '%s' "$1" >mark`, dir)
		command.Dir = dir
		result := f.exec(w, command)
		require.Equal(f, root+at+"\n", result.Stdout, "%q", dir)
		require.Equal(f, dir, string(f.read(w, "."+at+"/mark")))
	}
}

func noDirCase(f *fixture) {
	w := f.workspace()
	f.shell(w, `touch file; ln -s /usr outside; ln -s .. up; ln -s loop loop; ln -s nosuch dangling`)
	for _, dir := range []string{"file", "nosuch", "file/x", "outside", "up", "loop", "dangling", "../x", "/etc", "/workspace-evil", "a\x00b"} {
		command := sh("echo ran")
		command.Dir = dir
		r := f.attempt(f.Context(), w, command, f.bound)
		require.ErrorIs(f, r.err, workspaces.ErrInvalidInput, "%q: %+v", dir, r.Result)
		require.Empty(f, r.Stdout, "%q", dir)
	}
	require.Equal(f, "on\n", f.shell(w, "echo on"))
}

func resultsDoNotMixCase(f *fixture) {
	w := f.workspace()
	const commands = 8
	var all sync.WaitGroup
	var results [commands]ran
	for i := range commands {
		all.Go(func() {
			result, err := w.Exec(f.Context(), sh(`i=0; while [ $i -lt 200 ]; do echo "$1"; echo "e$1" >&2; i=$((i+1)); done; sleep 0.2; exit "$1"`, strconv.Itoa(i+1)))
			results[i] = ran{result, err}
		})
	}
	within(f, f.bound, "some Exec", func() bool { all.Wait(); return true })
	for i, r := range results {
		require.NoError(f, r.err)
		require.Equal(f, i+1, r.ExitCode)
		require.Equal(f, strings.Repeat(fmt.Sprintf("%d\n", i+1), 200), r.Stdout)
		require.Equal(f, strings.Repeat(fmt.Sprintf("e%d\n", i+1), 200), r.Stderr)
	}
}

func runsOnceCase(f *fixture) {
	w := f.workspace()
	for _, code := range []string{"0", "1", "126", "127", "255"} {
		f.exec(w, sh(`echo x >>count; exit "$1"`, code))
	}
	r := f.attempt(f.Context(), w, workspaces.Command{Args: []string{"sh", "-c", "echo x >>count; sleep 300"}, Timeout: time.Second}, f.bound)
	require.NoError(f, r.err)
	require.Equal(f, "x\nx\nx\nx\nx\nx\n", string(f.read(w, "count")))
}

func environmentCase(f *fixture) {
	w := f.workspace()
	result := f.exec(w, workspaces.Command{Args: []string{"env"}})
	require.Zero(f, result.ExitCode)
	require.NotContains(f, result.Stdout, spoiledEnv)
	require.NotContains(f, result.Stdout, spoiledValue)
	for _, name := range []string{"GIT_DIR=", "GIT_INDEX_FILE=", "GIT_CONFIG_GLOBAL=", "SSH_ASKPASS="} {
		require.NotContains(f, result.Stdout, name)
	}
	require.Contains(f, strings.Split(result.Stdout, "\n"), "CI=true")
	require.Contains(f, strings.Split(result.Stdout, "\n"), "GIT_TERMINAL_PROMPT=0")
	f.shell(w, `
		[ "$(cd "$WORKSPACE" && pwd -P)" = "$(pwd -P)" ] || { echo "WORKSPACE is $WORKSPACE" >&2; exit 1; }
		touch "$HOME/f" && cd "$HOME" && [ "$(pwd -P)" != "$(cd "$WORKSPACE" && pwd -P)" ] || exit
		d=$(mktemp -d) && touch "$d/f" && rm -r "$d"`)
}
