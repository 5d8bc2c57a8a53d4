//go:build linux || darwin

package local

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/carrel-dev/carrel/workspaces"
)

// exitTimeout is the exit code of a command that timed out.
const exitTimeout = 124

// Exec runs a command on the host. Beyond what every workspace answers: ErrInvalidInput for
// arguments that are too long for the system, ErrOutcomeUnknown where somebody else
// has reaped our child.
func (w *Workspace) Exec(ctx context.Context, c workspaces.Command) (workspaces.Result, error) {
	if err := w.enter(ctx); err != nil {
		return workspaces.Result{}, err
	}
	defer w.calls.leave()

	timeout := c.Timeout
	if timeout <= 0 {
		timeout = workspaces.ExecTimeout
	}
	bound, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()

	j, refused, err := w.start(c)
	if err != nil {
		return workspaces.Result{}, err
	}
	if j == nil {
		fmt.Fprintf(c.Stderr, "%.200s: %s\n", c.Args[0], refused.reason)
		return workspaces.Result{ExitCode: refused.code}, nil
	}
	select {
	case <-j.exited:
		return w.finish(ctx, bound, j)
	case <-bound.Done():
	case <-w.ending:
	}
	if j.hasExited() && ctx.Err() == nil {
		return w.finish(ctx, bound, j)
	}

	stopped := w.stop(j)
	if bound.Err() != nil { // the time is up: the command has its grace, the caller may still leave
		select {
		case <-stopped:
		case <-ctx.Done():
		case <-w.ending:
		}
	}
	for _, o := range j.outputs {
		o.finish()
	}
	for _, o := range j.outputs {
		o.abandon()
	}
	if err := w.interrupted(ctx); err != nil {
		return workspaces.Result{}, err
	}
	return workspaces.Result{ExitCode: exitTimeout, TimedOut: true}, nil
}

// interrupted returns why a call ends before its command did, or nil.
func (w *Workspace) interrupted(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case <-w.ending:
		return workspaces.ErrDisposed
	default:
		return nil
	}
}

// finish ends the call of a command that has ended by itself.
func (w *Workspace) finish(ctx, bound context.Context, j *job) (workspaces.Result, error) {
	for _, o := range j.outputs {
		o.finish()
	}
	held, hurried := false, false
	for _, o := range j.outputs {
		select {
		case <-o.taken:
			held = held || o.held
			continue
		case <-bound.Done():
		case <-w.ending:
		}
		o.abandon() // a sink blocks
		held, hurried = true, true
	}
	if j.stdin != nil {
		j.stdin.Close()
	}
	code, err := j.reap()
	if held || j.leavesGroup() {
		w.remember(j)
	}
	w.forget(j)
	if err == nil && hurried {
		err = w.interrupted(ctx)
	}
	return workspaces.Result{ExitCode: code}, err
}

// start starts a command. A program that cannot be started is no error: the job is nil then.
func (w *Workspace) start(c workspaces.Command) (*job, refusal, error) {
	dir, err := w.commandDir(c.Dir)
	if err != nil {
		return nil, refusal{}, err
	}
	w.signals.catch()

	j := &job{mark: newMark(w.ID()), exited: make(chan struct{})}
	env := commandEnv(w.env, c.Env, dir, j.mark)

	var opened []*os.File
	closeAll := func(files []*os.File) {
		for _, f := range files {
			f.Close()
		}
	}
	pipe := func() (read, write *os.File, err error) {
		read, write, err = os.Pipe()
		if err == nil {
			opened = append(opened, read, write)
		}
		return read, write, err
	}
	var stdin, stdout, stderr, outOurs, errOurs *os.File
	if c.Stdin == nil {
		if stdin, err = os.Open(os.DevNull); err == nil {
			opened = append(opened, stdin)
		}
	} else {
		stdin, j.stdin, err = pipe()
	}
	if err == nil {
		outOurs, stdout, err = pipe()
	}
	if err == nil {
		errOurs, stderr, err = pipe()
	}
	if err != nil {
		closeAll(opened)
		return nil, refusal{}, err
	}

	attributes := &os.ProcAttr{
		Dir:   dir,
		Env:   env,
		Files: standardFiles(stdin, stdout, stderr),
		// A session has no terminal, so that nothing can ask a person there.
		Sys: &syscall.SysProcAttr{Setsid: true},
	}
	// Until it has its own program, a child looks like one that has shed all that it is known by.
	w.mu.Lock()
	w.starting++
	w.mu.Unlock()
	process, refused, err := execute(c.Args, dir, lookupEnv(env, "PATH"), func(program string, args []string) (*os.Process, error) {
		return os.StartProcess(program, args, attributes)
	})
	if process == nil {
		w.mu.Lock()
		w.starting--
		w.mu.Unlock()
		closeAll(opened)
		if _, missing := os.Stat(dir); missing != nil {
			return nil, refusal{}, w.orGone(missing)
		}
		return nil, refused, err
	}
	closeAll([]*os.File{stdin, stdout, stderr})

	j.process, j.pid = process, process.Pid
	j.outputs = [2]*output{newOutput(outOurs, c.Stdout), newOutput(errOurs, c.Stderr)}
	w.mu.Lock()
	w.starting--
	w.started++
	j.number = w.started
	w.running[j] = struct{}{}
	for _, o := range j.outputs {
		w.outputs[o] = struct{}{}
	}
	w.mu.Unlock()

	w.drains.join()
	go func() {
		defer w.drains.leave()
		j.wait()
	}()
	for _, o := range j.outputs {
		w.drains.join()
		go func() {
			defer w.drains.leave()
			o.run()
			w.mu.Lock()
			defer w.mu.Unlock()
			delete(w.outputs, o)
		}()
	}
	if j.stdin != nil {
		// It is not waited for: the reader is the caller's and may block for as long as it likes.
		go func() {
			defer j.stdin.Close()
			_, _ = io.Copy(j.stdin, c.Stdin)
		}()
	}
	return j, refusal{}, nil
}

// commandDir returns the real path of the directory that a command is to run in.
func (w *Workspace) commandDir(dir string) (string, error) {
	if dir == "" || dir == "." {
		return w.folder.dir(), nil // when it is missing, the start fails
	}
	path := ""
	err := steadily(func() error {
		at, err := w.locate(dir)
		if err != nil {
			return err
		}
		defer at.close()
		if at.info == nil {
			return fmt.Errorf("%w: directory %.200q: %w", workspaces.ErrInvalidInput, dir, fs.ErrNotExist)
		}
		if !at.info.IsDir() {
			return fmt.Errorf("%w: %.200q is no directory", workspaces.ErrInvalidInput, dir)
		}
		path = filepath.Join(w.folder.dir(), at.path)
		return nil
	})
	if err != nil {
		return "", w.orGone(err)
	}
	return path, nil
}

// forget notes that a command has ended.
func (w *Workspace) forget(j *job) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.running, j)
}

// remember notes that a command that has ended has left processes behind, and which.
func (w *Workspace) remember(j *job) {
	t, err := processes()
	if err != nil {
		t = nil
	}
	// It was reaped a moment ago; its number means nobody else yet.
	j.members(t, func(p process) bool { return p.session == j.pid })
	w.mu.Lock()
	defer w.mu.Unlock()
	w.left = slices.DeleteFunc(w.left, func(earlier *job) bool { return !earlier.remains(t) })
	w.left = append(w.left, j)
}

// remains says whether a process of the job that was seen is in the table.
func (j *job) remains(t table) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	for pid := range j.known {
		if p, ok := t[pid]; ok && j.knows(p) {
			return true
		}
	}
	return false
}

// bare is what the system said, without the names of files.
func bare(err error) error {
	var path *fs.PathError
	var link *os.LinkError
	var call *os.SyscallError
	switch {
	case errors.As(err, &path):
		return path.Err
	case errors.As(err, &link):
		return link.Err
	case errors.As(err, &call):
		return call.Err
	}
	return err
}
