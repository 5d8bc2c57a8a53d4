package tools

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/carrel-dev/carrel/workspaces"
)

// proves T10 and C30: exit codes, no state between calls, the dialect is named.
func TestBash_T10_C30_ExitCodes(t *testing.T) {
	s := newRoom(t)
	s.put(t, "noexec", "x\n", "sub/f", "x\n", "x", "x\n")
	for _, c := range []struct{ command, want string }{
		{"true", "[bash: exit code 0]"},
		{"exit 3", "[bash: exit code 3]"},
		{"nosuchcmd", "bash: line 1: nosuchcmd: command not found\n[bash: exit code 127]"},
		{"./noexec", "bash: line 1: ./noexec: Permission denied\n[bash: exit code 126]"},
		{"kill -9 $$", "[bash: exit code 137]"},
		{"kill -TERM $$", "[bash: exit code 143]"},
		{"exit 124", "[bash: exit code 124]"},
		{"set -eu; false; echo no", "[bash: exit code 1]"},
		{"cd sub && pwd", "/workspace/sub\n[bash: exit code 0]"},
		{"pwd; echo $WORKSPACE", "/workspace\n/workspace\n[bash: exit code 0]"},
		{"export A=1", "[bash: exit code 0]"},
		{`echo "[$A]"`, "[]\n[bash: exit code 0]"},
		{"[[ -f x ]] && echo y", "y\n[bash: exit code 0]"},
		{"set -o pipefail; echo ok", "ok\n[bash: exit code 0]"},
		{"printf noeol", "noeol\n[bash: exit code 0]"},
		{"echo $0", "bash\n[bash: exit code 0]"},
		{"-x", "bash: line 1: -x: command not found\n[bash: exit code 127]"}, // C35
	} {
		require.Equal(t, c.want, s.call(t, Bash, "command", c.command), c.command)
	}
}

// proves T10: stderr is merged in the order of arrival, also where both are written a thousand times.
func TestBash_T10_StderrInOrder(t *testing.T) {
	s := newRoom(t)
	var want strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&want, "o%d\ne%d\n", i, i)
	}
	require.Equal(t, want.String()+"[bash: exit code 7]",
		s.call(t, Bash, "command", "for ((i=0; i<1000; i++)); do echo o$i; echo e$i >&2; done; exit 7"))
}

// proves T10 and C31: a command that reads gets end of file.
func TestBash_C31_Stdin(t *testing.T) {
	s := newRoom(t)
	require.Equal(t, "rc=0\n[bash: exit code 0]", s.call(t, Bash, "command", "cat; echo rc=$?"))
	require.Equal(t, "rc=1\n[bash: exit code 0]", s.call(t, Bash, "command", `read x; echo "rc=$?"`))
	require.Equal(t, "[bash: exit code 1]", s.call(t, Bash, "command", "grep foo"))
	require.Contains(t, s.call(t, Bash, "command", "git commit"), "[bash: exit code 1]")
	require.Contains(t, s.call(t, Bash, "command", "touch f; git add f; git commit"), "[bash: exit code 1]", "no editor opens")
	if _, err := exec.LookPath("python3"); err == nil {
		text := s.call(t, Bash, "command", "python3 -c 'input()'")
		require.Contains(t, text, "EOFError")
		require.Contains(t, text, "[bash: exit code 1]")
	}
	// The same for a command that itself came on stdin.
	long := strings.Repeat("# comment\n", 20_000)
	require.Equal(t, "rc=0\n[bash: exit code 0]", s.call(t, Bash, "command", long+"cat; echo rc=$?"))
}

// proves T10, W2 and C33: floods are bounded, and do not starve the timeout.
func TestBash_C33_Floods(t *testing.T) {
	s := newRoom(t)
	text := s.call(t, Bash, "command", `head -c 104857600 /dev/zero | tr '\0' y`)
	require.Less(t, len(text), workspaces.OutputMaxBytes+500)
	require.True(t, strings.HasPrefix(text, strings.Repeat("y", workspaces.OutputHeadBytes)+"\n["))
	require.Contains(t, text, " bytes left out]\nyyy")
	require.Contains(t, text, "\n[the output has 104857600 bytes, its middle is left out. To see all of it,")
	require.True(t, strings.HasSuffix(text, "\n[bash: exit code 0]"))
	for _, command := range []string{"yes", "yes >&2 & yes"} {
		text := s.call(t, Bash, "command", command, "timeout_seconds", 1)
		require.Contains(t, text, "\n[timed out after 1 seconds;")
		require.True(t, strings.HasSuffix(text, "\n[bash: exit code 124]"))
	}
	text = s.call(t, Bash, "command", "i=0; while [ $i -lt 100000 ]; do printf x; i=$((i+1)); done")
	require.Contains(t, text, "[the output has 100000 bytes")
	require.Equal(t, "y\nrc=0\n[bash: exit code 0]", s.call(t, Bash, "command", "yes | head -n1; echo rc=$?"))
}

// proves T10 and C34: a command is what was typed, and nothing of a wrapper shows, however long it is.
func TestBash_C34_AsTyped(t *testing.T) {
	s := newRoom(t)
	for _, c := range []struct{ command, want string }{
		{"cat > f <<'EOF'\nline 1\n  EOF\nlast\nEOF", "[bash: exit code 0]"},
		{"wc -l < f", "3\n[bash: exit code 0]"},
		{"echo hi # note", "hi\n[bash: exit code 0]"},
		{`echo hi \`, "hi\n[bash: exit code 0]"},
		{"exec echo bye", "bye\n[bash: exit code 0]"},
		{"trap 'echo t' EXIT; exit 5", "t\n[bash: exit code 5]"},
		{"echo a\n\n\necho b\n\n", "a\nb\n[bash: exit code 0]"},
		{`printf '%s\n' '$& $1 \1 %s' "it's"`, "$& $1 \\1 %s\nit's\n[bash: exit code 0]"},
	} {
		require.Equal(t, c.want, s.call(t, Bash, "command", c.command), c.command)
	}
	for _, c := range []struct{ command, want string }{
		{"echo 'open", "[bash: exit code 2]"},
		{"cat <<X", "[bash: exit code 0]"},
		{"}", "[bash: exit code 2]"},
		{")", "[bash: exit code 2]"},
	} {
		short := s.call(t, Bash, "command", c.command)
		long := s.call(t, Bash, "command", strings.Repeat("# comment\n", 20_000)+c.command)
		for _, text := range []string{short, long} {
			require.True(t, strings.HasSuffix(text, c.want), text)
			require.True(t, strings.HasPrefix(text, "bash: "), text)
			require.NotContains(t, text, "script.")
			require.NotContains(t, text, "carrel")
		}
	}
	require.Equal(t, "bash\nbash: line 20002: nosuch: command not found\n[bash: exit code 127]",
		s.call(t, Bash, "command", strings.Repeat("# comment\n", 20_000)+"echo $0\nnosuch"), "as a short one")
}

// proves T10 and C35: a command with NUL or without anything is refused, one above 128 KiB runs, its script leaves nothing.
func TestBash_C35_Commands(t *testing.T) {
	s := newRoom(t)
	s.refused(t, []string{"NUL"}, Bash, "command", "echo a\x00b")
	s.refused(t, []string{"command is empty"}, Bash, "command", "")
	s.refused(t, []string{"command is empty"}, Bash, "command", " \n\t")
	for _, n := range []int{argumentMaxBytes - 100, argumentMaxBytes, 200_000, 900_000} {
		text := s.call(t, Bash, "command", "cat > f <<'EOF'\n"+strings.Repeat("a", n)+"\nEOF\nwc -c < f")
		require.Equal(t, fmt.Sprintf("%d\n[bash: exit code 0]", n+1), text)
	}
	require.Equal(t, "[bash: exit code 143]", s.call(t, Bash, "command", strings.Repeat("#\n", 50_000)+"kill $$"))
	require.Equal(t, "0\n[bash: exit code 0]", s.call(t, Bash, "command", `ls -A "$TMPDIR" | wc -l`))
	s.refused(t, []string{"command has 1048577 characters, at most 1048576"}, Bash, "command", strings.Repeat("a", 1<<20+1))
}

// withoutBash is a PATH with everything that ours has but bash.
func withoutBash(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, from := range filepath.SplitList(os.Getenv("PATH")) {
		entries, _ := os.ReadDir(from)
		for _, entry := range entries {
			if entry.Name() != "bash" {
				_ = os.Symlink(filepath.Join(from, entry.Name()), filepath.Join(dir, entry.Name())) // the first one counts
			}
		}
	}
	return dir
}

// proves T10 and C30: without bash it is sh, and the result says so.
func TestBash_T10_Sh(t *testing.T) {
	s := newScene(t, workspaces.Options{Env: map[string]string{"PATH": withoutBash(t)}}, nil)
	s.create(t, "")
	require.Equal(t, "hi\n[sh: exit code 0]", s.call(t, Bash, "command", "echo hi"))
	require.Equal(t, "hi\n[sh: exit code 0]", s.call(t, Bash, "command", strings.Repeat("#\n", 50_000)+"echo hi"))
	for _, command := range []string{"nosuch", strings.Repeat("#\n", 50_000) + "nosuch"} {
		text := s.call(t, Bash, "command", command)
		require.Contains(t, text, "nosuch: not found\n[sh: exit code 127]")
		require.True(t, strings.HasPrefix(text, "sh: "), text)
	}
}

// proves T10: where no shell can be started, that is said.
func TestBash_T10_NoShell(t *testing.T) {
	s := newScene(t, workspaces.Options{}, changeExec(func(_ context.Context, command workspaces.Command, _ execFunc) (workspaces.Result, error) {
		_, err := fmt.Fprintln(command.Stderr, "sh: no such file")
		return workspaces.Result{ExitCode: 127}, err
	}))
	s.create(t, "")
	require.Equal(t, "Error: no shell ran the command. sh: no such file.\n[shell: exit code 127]", s.call(t, Bash, "command", "echo hi"))
}

// proves T10 and W18: what ran out of memory is told so.
func TestBash_T10_OutOfMemory(t *testing.T) {
	s := newScene(t, workspaces.Options{}, changeExec(func(_ context.Context, command workspaces.Command, _ execFunc) (workspaces.Result, error) {
		_, err := fmt.Fprint(command.Stdout, "bash\nhalf")
		return workspaces.Result{ExitCode: 137, OOMKilled: true}, err
	}))
	s.create(t, "")
	text := s.call(t, Bash, "command", "make")
	require.True(t, strings.HasPrefix(text, "half\n[out of memory: "), text)
	require.True(t, strings.HasSuffix(text, "]\n[bash: exit code 137]"), text)
}

// proves T10 and C27: a timeout is a result that keeps the output, and stops what was started.
func TestBash_C27_Timeout(t *testing.T) {
	s := newRoom(t)
	text := s.call(t, Bash, "command", `echo partial; sh -c 'trap "" TERM; echo $$ > pid; sleep 600; sleep 600' & sleep 600`, "timeout_seconds", 1)
	require.True(t, strings.HasPrefix(text, "partial\n[timed out after 1 seconds; it was stopped with everything it had started. "), text)
	require.True(t, strings.HasSuffix(text, "\n[bash: exit code 124]"), text)
	requireDead(t, s.file(t, "pid"))
}

// requireDead waits until a process is gone, or a zombie.
func requireDead(t *testing.T, pid string) {
	t.Helper()
	var n int
	_, err := fmt.Sscan(pid, &n)
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		if syscall.Kill(n, 0) != nil {
			return true
		}
		out, _ := exec.Command("ps", "-o", "stat=", "-p", fmt.Sprint(n)).Output()
		return len(out) == 0 || out[0] == 'Z'
	}, time.Minute, 20*time.Millisecond, "process %d lives", n)
}

// proves T10 and C25: a job in the background does not hold the call, and runs on.
func TestBash_C25_Background(t *testing.T) {
	s := newRoom(t)
	require.Equal(t, "started\n[bash: exit code 0]", s.call(t, Bash, "command", "sleep 600 & echo $! > pid; echo started"))
	require.Equal(t, "[bash: exit code 7]", s.call(t, Bash, "command", "sleep 600 & exit 7"))
	require.Equal(t, "ok\n[bash: exit code 0]", s.call(t, Bash, "command", "sleep 600 </dev/null >/dev/null & echo ok"))
	require.Equal(t, "alive\n[bash: exit code 0]", s.call(t, Bash, "command", `kill -0 "$(cat pid)" && echo alive`))
	s.call(t, DisposeWorkspace)
}

// proves T2 and T10: the real directory never shows, where a chunk ends inside it neither; what is alike stays.
func TestBash_T2_Root(t *testing.T) {
	s := newRoom(t)
	root := s.root(t)
	s.put(t, "sub/f", "x\n")
	half := len(root) / 2
	for command, want := range map[string]string{
		`pwd; echo "$PWD/x"; cd sub; pwd; realpath f`:                                                     "/workspace\n/workspace/x\n/workspace/sub\n/workspace/sub/f\n",
		fmt.Sprintf("printf %%s '%s'; sleep 0.3; printf '%%s\\n' '%s/f'", root[:half], root[half:]):       "/workspace/f\n",
		fmt.Sprintf("printf %%s '%s'; sleep 0.3; printf '%%s\\n' '%s-evil/f'", root[:half], root[half:]):  root + "-evil/f\n",
		fmt.Sprintf("printf '%s' | while IFS= read -rn1 c; do printf %%s \"$c\"; sleep 0.01; done", root): "/workspace\n",
		fmt.Sprintf("ls %s/nosuch", root):                                                                 "ls: cannot access '/workspace/nosuch': No such file or directory\n",
		fmt.Sprintf("printf '%s'", root):                                                                  "/workspace\n",
		fmt.Sprintf("cat %s/sub/f", root):                                                                 "x\n",
		`cat "$WORKSPACE/sub/f"; test -e /workspace || echo the tool text says so`:                        "x\nthe tool text says so\n",
	} {
		text := s.call(t, Bash, "command", command)
		out, _, _ := strings.Cut(text, "[bash: ")
		require.Equal(t, want, out, command)
	}
}
