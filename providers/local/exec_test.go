//go:build linux || darwin

package local

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/carrel-dev/carrel/workspaces"
)

// proves W1, W10
func TestExecExitCodesW10(t *testing.T) {
	w := newTestWorkspace(t)
	dir := w.HostDir()
	write := func(name, content string, mode os.FileMode) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(content), mode))
		require.NoError(t, os.Chmod(filepath.Join(dir, name), mode))
	}
	write("noexec", "#!/bin/sh\n", 0o644)
	write("script", "#!/bin/sh\necho \"$0 $1\"\nexit 9\n", 0o755)
	write("bare", "echo \"bare $1\"\n", 0o755)
	write("binary", "\x00\x01\x02", 0o755)
	write("lost", "#!/no/such/interpreter\n", 0o755)
	require.NoError(t, os.Mkdir(filepath.Join(dir, "sub"), 0o755))
	write("sub/tool", "#!/bin/sh\necho tool\n", 0o755)

	for _, c := range []struct {
		name string
		args []string
		env  map[string]string
		dir  string
		code int
		out  string
	}{
		{name: "own", args: []string{"sh", "-c", "exit 3"}, code: 3},
		{name: "zero", args: []string{"true"}},
		{name: "own 124", args: []string{"sh", "-c", "exit 124"}, code: 124},
		{name: "own 137", args: []string{"sh", "-c", "exit 137"}, code: 137},
		{name: "killed", args: []string{"sh", "-c", "kill -9 $$"}, code: 137},
		{name: "terminated", args: []string{"sh", "-c", "kill -TERM $$"}, code: 143},
		{name: "not found", args: []string{"nosuchcmd"}, code: 127},
		{name: "dash", args: []string{"-x"}, code: 127},
		{name: "empty", args: []string{""}, code: 127},
		{name: "no such path", args: []string{"./nosuch"}, code: 127},
		{name: "below a file", args: []string{"./script/x"}, code: 127},
		{name: "no permission", args: []string{"./noexec"}, code: 126},
		{name: "directory", args: []string{"./sub"}, code: 126},
		{name: "root directory", args: []string{"/"}, code: 126},
		{name: "binary garbage", args: []string{"./binary"}, code: 126},
		{name: "interpreter lost", args: []string{"./lost"}, code: 127},
		{name: "script", args: []string{"./script", "a b"}, code: 9, out: "./script a b\n"},
		{name: "script by path from a directory", args: []string{"../script", "x"}, dir: "sub", code: 9, out: "../script x\n"},
		{name: "no interpreter line", args: []string{"./bare", "x"}, out: "bare x\n"},
		{name: "command's PATH", args: []string{"tool"}, env: map[string]string{"PATH": "/nowhere:sub"}, out: "tool\n"},
		{name: "PATH relative to Dir", args: []string{"tool"}, dir: "sub", env: map[string]string{"PATH": ":/usr/bin:/bin"}, out: "tool\n"},
		{name: "PATH hides the host's", args: []string{"sh", "-c", ":"}, env: map[string]string{"PATH": "/nowhere"}, code: 127},
		{name: "forbidden in PATH", args: []string{"noexec"}, env: map[string]string{"PATH": "."}, code: 126},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := run(t, w, workspaces.Command{Args: c.args, Env: c.env, Dir: c.dir})
			require.Equal(t, c.code, r.ExitCode, "%s", r.err)
			require.Equal(t, c.out, r.out)
			require.False(t, r.TimedOut)
			if c.code == 126 || c.code == 127 {
				require.NotEmpty(t, r.err)
			}
		})
	}
}

// proves W1
func TestExecTooLongIsInvalidInput(t *testing.T) {
	w := newTestWorkspace(t)
	for name, c := range map[string]workspaces.Command{
		"argument":    {Args: []string{"true", strings.Repeat("a", 200_000)}},
		"environment": {Args: []string{"true"}, Env: map[string]string{"A": strings.Repeat("a", 200_000)}},
		"NUL":         {Args: []string{"true", "a\x00b"}},
	} {
		t.Run(name, func(t *testing.T) {
			require.ErrorIs(t, attempt(t.Context(), w, c).failure, workspaces.ErrInvalidInput)
		})
	}
}

// proves W13
func TestExecDirW13(t *testing.T) {
	w := newTestWorkspace(t)
	outside := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(w.HostDir(), "a/b"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(w.HostDir(), "file"), nil, 0o644))
	for link, target := range map[string]string{
		"inside": "a/b", "absolute": filepath.Join(w.HostDir(), "a"), "outside": outside, "up": "../..", "sibling": "../home", "model": "/workspace/a", "loop": "loop",
	} {
		require.NoError(t, os.Symlink(target, filepath.Join(w.HostDir(), link)))
	}
	pwd := func(dir string) ran {
		return attempt(t.Context(), w, workspaces.Command{Args: []string{"sh", "-c", `pwd; echo "$PWD"`}, Dir: dir})
	}
	for dir, real := range map[string]string{"": "", ".": "", "a/b": "/a/b", "inside": "/a/b", "absolute/b": "/a/b"} {
		r := pwd(dir)
		require.NoError(t, r.failure, dir)
		at := w.HostDir() + real
		require.Equal(t, at+"\n"+at+"\n", r.out)
	}
	for _, dir := range []string{"file", "nosuch", "outside", "up", "sibling", "model", "loop", "a/nosuch", "file/x"} {
		require.ErrorIs(t, pwd(dir).failure, workspaces.ErrInvalidInput, dir)
	}
}

// proves P6
func TestExecEnvironmentP6(t *testing.T) {
	t.Setenv("API_TOKEN", "s3cret")
	t.Setenv("GIT_DIR", "/elsewhere/.git")
	t.Setenv("XDG_CONFIG_HOME", "/elsewhere")
	t.Setenv("HTTPS_PROXY", "http://elsewhere")
	p := newProvider(t, Options{Env: map[string]string{"A": "provider", "B": "provider", "C": "provider"}})
	options := createOptions()
	options.Env = map[string]string{"B": "create", "C": "create", "PWD": "/x", "WORKSPACE": "/x"}
	w := create(t, p, options)
	r := run(t, w, workspaces.Command{Args: []string{"env"}, Env: map[string]string{"C": "command", "MULTI": "a\nb=c", execEnv: "x", "WORKSPACE": "/x"}})
	lines := strings.Split(strings.TrimSuffix(r.out, "\n"), "\n")
	var kept []string
	for _, line := range lines {
		if !strings.HasPrefix(line, execEnv+"="+w.ID()+".") {
			kept = append(kept, line)
		}
	}
	require.Len(t, kept, len(lines)-1)
	base := filepath.Dir(w.HostDir())
	require.ElementsMatch(t, []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + base + "/home", "TMPDIR=" + base + "/tmp", "LANG=C.UTF-8", "CI=true",
		"GIT_CONFIG_NOSYSTEM=1", "GIT_TERMINAL_PROMPT=0", "GIT_CEILING_DIRECTORIES=" + base,
		"A=provider", "B=create", "C=command", "MULTI=a", "b=c",
		"WORKSPACE=" + w.HostDir(), "PWD=" + w.HostDir(),
	}, kept)
	require.Equal(t, "ok", shell(t, w, `cd && touch "$TMPDIR/f" && touch x && [ "$PWD" = "$HOME" ] && printf ok`))
}

// proves C41: nothing of the user's or the system's git configuration arrives, also when
// the root lies in a repository.
func TestExecGitConfigC41(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("no git")
	}
	home := t.TempDir()
	t.Setenv("HOME", home)
	require.NoError(t, os.WriteFile(filepath.Join(home, ".gitconfig"), []byte("[core]\n\tautocrlf = true\n[commit]\n\tgpgsign = true\n"), 0o644))
	repository := t.TempDir()
	require.NoError(t, exec.Command("git", "init", "-q", repository).Run())
	w := create(t, newProvider(t, Options{Root: filepath.Join(repository, "root")}), createOptions())
	require.Empty(t, shell(t, w, "git config --list"))
	require.Equal(t, 128, run(t, w, sh("git rev-parse --git-dir")).ExitCode)
	shell(t, w, "git init -q .")
	require.Equal(t, ".git\n", shell(t, w, "git rev-parse --git-dir"))
}

// proves W11
func TestExecStdinW11(t *testing.T) {
	w := newTestWorkspace(t)
	t.Run("none is end of file", func(t *testing.T) {
		require.Equal(t, "rc=0\n", shell(t, w, "cat; echo rc=$?"))
		require.Equal(t, "rc=1\n", shell(t, w, "read x; echo rc=$?"))
	})
	t.Run("whole", func(t *testing.T) {
		data := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
		r := run(t, w, workspaces.Command{Args: []string{"sha256sum"}, Stdin: bytes.NewReader(data)})
		require.Equal(t, fmt.Sprintf("%x  -\n", sha256.Sum256(data)), r.out)
	})
	t.Run("not read", func(t *testing.T) {
		r := run(t, w, workspaces.Command{Args: []string{"sh", "-c", "exit 4"}, Stdin: bytes.NewReader(make([]byte, 1<<20))})
		require.Equal(t, 4, r.ExitCode)
	})
	t.Run("a reader that blocks", func(t *testing.T) {
		reader, writer := io.Pipe()
		r := run(t, w, workspaces.Command{Args: []string{"sh", "-c", "exit 5"}, Stdin: reader})
		require.Equal(t, 5, r.ExitCode)
		require.NoError(t, writer.Close())
	})
}

// proves W7
func TestExecBackgroundJobW7(t *testing.T) {
	for name, c := range map[string]struct {
		script, out string
		code        int
	}{
		"both streams":    {"sleep 300 & echo started", "started\n", 0},
		"exit code":       {"sleep 300 & exit 7", "", 7},
		"stderr only":     {"sleep 300 </dev/null >/dev/null & echo ok", "ok\n", 0},
		"neither":         {"sleep 300 >/dev/null 2>&1 & echo ok", "ok\n", 0},
		"own session":     {"setsid sleep 300 & echo ok", "ok\n", 0},
		"writes all time": {"yes x & echo ok >&2; exit 3", "", 3},
		"much output":     {"sleep 300 & head -c 60000 /dev/zero | tr '\\0' y; exit 2", strings.Repeat("y", 60000), 2},
	} {
		t.Run(name, func(t *testing.T) {
			w := newTestWorkspace(t)
			r := run(t, w, sh(c.script))
			require.Equal(t, c.code, r.ExitCode)
			require.False(t, r.TimedOut)
			if !strings.Contains(c.script, "yes") {
				require.Equal(t, c.out, r.out)
			}
			require.Less(t, r.took, 10*time.Second) // a watchdog: the job runs for minutes
		})
	}
}

// proves W7: a late write neither blocks the job nor kills it, and the job lives until Dispose.
func TestBackgroundJobIsDrainedW7(t *testing.T) {
	w := newTestWorkspace(t)
	r := run(t, w, sh(`
		(
			while [ ! -e go ]; do sleep 0.01; done
			head -c 1000000 /dev/zero && echo late >&2 && touch written
			exec sleep 300
		) &
		echo $!`))
	pid := strings.TrimSpace(r.out)
	shell(t, w, "touch go")
	eventually(t, "the job writes a megabyte to nobody", func() bool {
		_, err := os.Stat(filepath.Join(w.HostDir(), "written"))
		return err == nil
	})
	require.True(t, isAlive(t, pid))
	require.NoError(t, w.Dispose(t.Context()))
	require.False(t, isAlive(t, pid))
}

// proves W3: under 16 MiB of growth for 1 GiB
func TestFloodW3(t *testing.T) {
	w := newTestWorkspace(t)
	count := &counter{}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	r := run(t, w, workspaces.Command{Args: []string{"head", "-c", "1073741824", "/dev/zero"}, Stdout: count})
	runtime.ReadMemStats(&after)
	require.Zero(t, r.ExitCode)
	require.EqualValues(t, 1<<30, count.bytes)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(16<<20))
}

type counter struct{ bytes int64 }

func (c *counter) Write(p []byte) (int, error) {
	c.bytes += int64(len(p))
	return len(p), nil
}

// proves W4: bytes arrive as they are written
func TestOutputArrivesLiveW4(t *testing.T) {
	w := newTestWorkspace(t)
	out := newSink()
	done := make(chan ran, 1)
	go func() {
		c := sh("echo first; while [ ! -e go ]; do sleep 0.01; done; echo second")
		c.Stdout = out
		done <- attempt(t.Context(), w, c)
	}()
	require.Equal(t, []string{"first"}, out.awaitLines(t, 1))
	shell(t, w, "touch go")
	require.NoError(t, (<-done).failure)
	require.Equal(t, "first\nsecond\n", out.String())
}

// proves W4: a sink that blocks holds up neither timeout nor cancel, and gets nothing afterwards
func TestBlockedSinkW4(t *testing.T) {
	for _, how := range []string{"timeout", "cancel", "dispose", "ended"} {
		t.Run(how, func(t *testing.T) {
			w := newTestWorkspace(t)
			sink := &blockedSink{entered: make(chan struct{}, 1), release: make(chan struct{})}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			c := workspaces.Command{Args: []string{"yes"}, Stdout: sink}
			switch how {
			case "timeout":
				c.Timeout = 200 * time.Millisecond
			case "ended":
				c.Args, c.Timeout = []string{"echo", "x"}, 200*time.Millisecond
			}
			done := make(chan ran, 1)
			go func() { done <- attempt(ctx, w, c) }()
			<-sink.entered
			switch how {
			case "cancel":
				cancel()
			case "dispose":
				go w.Dispose(context.Background())
			}
			r := <-done
			writes := sink.writes.Load()
			switch how {
			case "timeout":
				require.NoError(t, r.failure)
				require.True(t, r.TimedOut)
			case "ended":
				require.NoError(t, r.failure)
				require.False(t, r.TimedOut)
			case "cancel":
				require.ErrorIs(t, r.failure, context.Canceled)
			case "dispose":
				require.ErrorIs(t, r.failure, workspaces.ErrDisposed)
			}
			close(sink.release)
			require.NoError(t, w.Dispose(t.Context()))
			require.Equal(t, writes, sink.writes.Load(), "a write began after Exec had returned")
		})
	}
}

// proves W12
func TestDescriptorsW12(t *testing.T) {
	w := newTestWorkspace(t)
	var pipe [2]int
	require.NoError(t, syscall.Pipe(pipe[:])) // without close-on-exec
	high, _, errno := syscall.Syscall(syscall.SYS_FCNTL, uintptr(pipe[0]), syscall.F_DUPFD, 200)
	require.Zero(t, errno)
	defer func() {
		for _, fd := range append(pipe[:], int(high)) {
			require.NoError(t, syscall.Close(fd))
		}
	}()
	// The shell's own test opens nothing; ls, or the expansion of a pattern, would have the directory open.
	const open = `i=0; while [ $i -lt 256 ]; do [ ! -e /dev/fd/$i ] || printf '%s ' $i; i=$((i+1)); done`
	require.Equal(t, "0 1 2 ", run(t, w, sh(open)).out)
	r := run(t, w, workspaces.Command{Args: []string{"sh", "-c", open}, Stdin: strings.NewReader("x")})
	require.Equal(t, "0 1 2 ", r.out)
}

// proves W12: what ignores signals itself does not pass that on
func TestDefaultSignalsW12(t *testing.T) {
	if isInner(t) {
		w := newTestWorkspace(t)
		// Signal 32 is the C library's own: a child of its posix_spawn (so one of make) has it ignored.
		require.Regexp(t, "^SigBlk: 0{16}\nSigIgn: 0{8}[08]0{7}\n$",
			strings.ReplaceAll(shell(t, w, "grep -E 'SigIgn|SigBlk' /proc/self/status"), "\t", " "))
		require.Equal(t, 130, run(t, w, sh("kill -INT $$")).ExitCode)
		// And we still do not die of it.
		require.NoError(t, syscall.Kill(os.Getpid(), syscall.SIGHUP))
		require.Equal(t, 129, run(t, w, sh("kill -HUP $$")).ExitCode)
		return
	}
	if runtime.GOOS != "linux" {
		t.Skip("reads /proc")
	}
	again(t, t.Name(), func(program string, args ...string) *exec.Cmd {
		return exec.Command("sh", append([]string{"-c", `trap '' HUP INT QUIT TSTP TTIN TTOU USR1 PIPE; exec "$@"`, "sh", program}, args...)...)
	})
}

// proves W12, C42: no terminal, so nobody is asked
func TestNoTerminal(t *testing.T) {
	w := newTestWorkspace(t)
	require.NotZero(t, run(t, w, sh("exec 3</dev/tty")).ExitCode)
}

type blockedSink struct {
	entered, release chan struct{}
	writes           atomic.Int32
}

func (s *blockedSink) Write(p []byte) (int, error) {
	s.writes.Add(1)
	select {
	case s.entered <- struct{}{}:
	default:
	}
	<-s.release
	return len(p), nil
}
