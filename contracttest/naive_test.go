//go:build linux

package contracttest

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/carrel-dev/carrel/workspaces"
)

// naive is how commands are run by who reads the documentation of os/exec and no more.
type naive struct {
	cancel    func(c *exec.Cmd) error // how a command is stopped
	waitDelay time.Duration           // zero: wait for all who hold the output
	failure   func(err error) bool    // which errors of Wait are one of Exec
}

func killChild(c *exec.Cmd) error { return c.Process.Kill() }
func killGroup(c *exec.Cmd) error { return syscall.Kill(-c.Process.Pid, syscall.SIGKILL) }
func termGroup(c *exec.Cmd) error { return syscall.Kill(-c.Process.Pid, syscall.SIGTERM) }

func (n naive) exec(ctx context.Context, w *workspace, command workspaces.Command) (workspaces.Result, error) {
	if isScript(command) {
		return w.exec(ctx, command) // the manager's own, so that there is a repository to begin with
	}
	bound, stop := context.WithTimeout(ctx, command.Timeout)
	defer stop()
	dir := filepath.Join(w.dir(), command.Dir)
	c := exec.CommandContext(bound, command.Args[0], command.Args[1:]...)
	c.Dir = dir
	base := filepath.Dir(w.dir())
	c.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + base + "/home", "TMPDIR=" + base + "/tmp", "CI=true", "GIT_TERMINAL_PROMPT=0",
		workspaces.WorkspaceEnv + "=" + w.dir(), "PWD=" + dir,
	}
	for _, env := range []map[string]string{w.state.options.Env, command.Env} {
		for name, value := range env {
			c.Env = append(c.Env, name+"="+value)
		}
	}
	c.Stdin, c.Stdout, c.Stderr = command.Stdin, command.Stdout, command.Stderr
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.WaitDelay = n.waitDelay
	c.Cancel = func() error { return n.cancel(c) }
	err := c.Start()
	if err != nil {
		_, _ = io.WriteString(command.Stderr, err.Error())
		return workspaces.Result{ExitCode: map[bool]int{true: 126, false: 127}[errors.Is(err, os.ErrPermission)]}, nil
	}
	done := make(chan error, 1)
	go func() { done <- c.Wait() }()
	select {
	case err = <-done:
	case <-w.world.ended: // the case has given up on it
		_ = killGroup(c)
		killAll(folder(w))
		err = <-done
	}
	if ctx.Err() != nil {
		return workspaces.Result{}, ctx.Err()
	}
	if bound.Err() != nil {
		return workspaces.Result{ExitCode: 124, TimedOut: true}, nil
	}
	if n.failure != nil && n.failure(err) {
		return workspaces.Result{}, err
	}
	status, _ := c.ProcessState.Sys().(syscall.WaitStatus)
	if status.Signaled() {
		return workspaces.Result{ExitCode: 128 + int(status.Signal())}, nil
	}
	return workspaces.Result{ExitCode: c.ProcessState.ExitCode()}, nil
}

// isScript says whether a command is one of package workspaces itself.
func isScript(command workspaces.Command) bool {
	return len(command.Args) > 3 && command.Args[3] == "carrel"
}
