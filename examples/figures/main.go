// Command figures shows, with figures, three things that a place for untrusted commands has to get right. It
// uses the local provider and needs sh, ps and coreutils.
//
//	figures memory      the memory of this process while a command writes 1 GiB
//	figures interrupt   Ctrl-C in the middle of a long command, and the processes that are left
//	figures server      a server started by one bash call, writing all the time, and probed by the next
//	figures             all three
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/cloudwego/eino/components/tool"

	"github.com/carrel-dev/carrel/providers/local"
	"github.com/carrel-dev/carrel/tools"
	"github.com/carrel-dev/carrel/workspaces"
)

func main() {
	figures := map[string]func(context.Context) error{"memory": memory, "interrupt": interrupt, "server": server, "hold": hold}
	names := []string{"memory", "interrupt", "server"}
	if len(os.Args) > 1 {
		names = os.Args[1:]
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := show(ctx, figures, names)
	stop()
	os.Exit(code)
}

func show(ctx context.Context, figures map[string]func(context.Context) error, names []string) int {
	for _, name := range names {
		figure := figures[name]
		if figure == nil {
			fmt.Fprintf(os.Stderr, "figures: no %q; there are memory, interrupt and server\n", name)
			return 2
		}
		if err := figure(ctx); err != nil {
			fmt.Fprintf(os.Stderr, "figures: %s: %v\n", name, err)
			return 1
		}
	}
	return 0
}

// inWorkspace gives f a run with one empty workspace below a temporary directory, and removes both.
func inWorkspace(ctx context.Context, f func(ctx context.Context, manager *workspaces.Manager, run *workspaces.Run) error) (err error) {
	root, err := os.MkdirTemp("", "carrel-figures-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(root)) }()
	provider, err := local.New(local.Options{Root: root})
	if err != nil {
		return err
	}
	manager, err := workspaces.NewManager(provider, workspaces.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, manager.Close(context.WithoutCancel(ctx))) }()
	run, err := manager.Open("figures")
	if err != nil {
		return err
	}
	if _, err := run.Acquire(ctx, workspaces.AcquireOptions{}); err != nil {
		return err
	}
	return f(ctx, manager, run)
}

func memory(ctx context.Context) error {
	return inWorkspace(ctx, func(ctx context.Context, _ *workspaces.Manager, run *workspaces.Run) error {
		before := highest()
		result, err := run.Workspaces()[0].Exec(ctx, workspaces.Command{Args: []string{"sh", "-c", "head -c 1073741824 /dev/zero | tr '\\0' y"}})
		if err != nil {
			return err
		}
		after := highest()
		fmt.Printf("memory: the command wrote %d bytes in %.1f s; %d of them are in the result (truncated: %t)\n",
			result.StdoutBytes, result.Duration.Seconds(), len(result.Stdout), result.StdoutTruncated)
		fmt.Printf("memory: most resident memory of this process %.1f MiB before, %.1f MiB after: %.1f MiB more\n", before, after, after-before)
		return nil
	})
}

// highest is the most memory this process ever had, in MiB. getrusage would count what was there before exec.
func highest() float64 {
	status, err := os.ReadFile("/proc/self/status")
	if err == nil {
		for line := range strings.Lines(string(status)) {
			var kib float64
			if _, err := fmt.Sscanf(line, "VmHWM: %f kB", &kib); err == nil {
				return kib / 1024
			}
		}
	}
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0
	}
	return float64(usage.Maxrss) / (1 << 20) // macOS counts bytes
}

// marker is an odd duration, to find the sleepers of interrupt in the process list.
const marker = "98765"

func interrupt(ctx context.Context) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	child := exec.CommandContext(ctx, self, "hold")
	output, err := child.StdoutPipe()
	if err != nil {
		return err
	}
	child.Stderr = os.Stderr
	if err := child.Start(); err != nil {
		return err
	}
	lines := bufio.NewScanner(output)
	lines.Scan() // its command runs
	fmt.Println("interrupt: a process with a workspace runs this command in it:", lines.Text())
	if err := list("before Ctrl-C"); err != nil {
		return err
	}
	began := time.Now()
	if err := child.Process.Signal(os.Interrupt); err != nil {
		return err
	}
	for lines.Scan() {
		fmt.Println("interrupt:", lines.Text())
	}
	err = child.Wait()
	fmt.Printf("interrupt: the process was gone %.2f s after Ctrl-C (%v)\n", time.Since(began).Seconds(), child.ProcessState)
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return err
	}
	return list("after Ctrl-C")
}

// list prints the processes that sleep for marker seconds.
func list(when string) error {
	all, err := exec.Command("ps", "-eo", "pid,ppid,args").Output()
	if err != nil {
		return err
	}
	found := 0
	for line := range strings.Lines(string(all)) {
		if strings.Contains(line, "sleep "+marker) {
			found++
			fmt.Print("interrupt:   ", line)
		}
	}
	fmt.Printf("interrupt: %s: %d processes of the command\n", when, found)
	return nil
}

// hold runs a command that ends by Ctrl-C only: a child, one in a session of its own, and one that ignores TERM.
func hold(ctx context.Context) error {
	return inWorkspace(ctx, func(ctx context.Context, _ *workspaces.Manager, run *workspaces.Run) error {
		script := "sleep " + marker + " & setsid sleep " + marker + " & sh -c 'trap \"\" TERM; sleep " + marker + "' & echo started; wait"
		_, err := run.Workspaces()[0].Exec(ctx, workspaces.Command{Args: []string{"sh", "-c", script}, Stdout: &announce{script: script}})
		fmt.Println("Exec returned:", err)
		return nil
	})
}

// announce prints the script once its first output has come.
type announce struct {
	script string
	done   bool
}

func (a *announce) Write(p []byte) (int, error) {
	if !a.done {
		a.done = true
		time.Sleep(200 * time.Millisecond) // the children have started, too
		fmt.Println(a.script)
	}
	return len(p), nil
}

// The server answers what is written to one pipe on another, and writes to its standard output without
// pause; the call that starts it returns at once.
const (
	startServer = `mkfifo ask answer
(i=0; while :; do echo "log line $((i=i+1))"; echo >> count; done) &
(while read -r question < ask; do echo "you said $question" > answer; done) &
echo "server started"`
	askServer = `echo hello > ask; cat answer; a=$(wc -l < count); sleep 1; b=$(wc -l < count); echo "log lines written in the last second: $((b - a))"`
)

func server(ctx context.Context) error {
	return inWorkspace(ctx, func(ctx context.Context, manager *workspaces.Manager, run *workspaces.Run) error {
		all, err := tools.New(manager, tools.Bash)
		if err != nil {
			return err
		}
		bash := all[0].(tool.InvokableTool)
		ctx = workspaces.ContextWithRun(ctx, run)
		for _, command := range []string{startServer, askServer} {
			began := time.Now()
			result, err := bash.InvokableRun(ctx, fmt.Sprintf(`{"command": %q}`, command))
			if err != nil {
				return err
			}
			lines := strings.Split(strings.TrimSpace(result), "\n")
			if len(lines) > 4 {
				lines = append(append(lines[:2:2], fmt.Sprintf("(%d more lines)", len(lines)-4)), lines[len(lines)-2:]...)
			}
			fmt.Printf("server: a bash call returned after %.2f s:\nserver:   %s\n", time.Since(began).Seconds(), strings.Join(lines, "\nserver:   "))
		}
		return nil
	})
}
