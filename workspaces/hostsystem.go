//go:build linux || darwin

package workspaces

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
)

// ownSession starts cmd as the leader of a process group of its own, without a terminal to ask on.
func ownSession(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
}

func terminateGroup(leader *os.Process) error { return signalGroup(leader, syscall.SIGTERM) }
func killGroup(leader *os.Process) error      { return signalGroup(leader, syscall.SIGKILL) }

func signalGroup(leader *os.Process, signal syscall.Signal) error {
	err := syscall.Kill(-leader.Pid, signal)
	if errors.Is(err, syscall.ESRCH) {
		return os.ErrProcessDone
	}
	return err
}

// tryLockFile locks an open file against other openings of it, also those of other processes, unless
// one of them stands in the way.
func tryLockFile(file *os.File, exclusive bool) (locked bool, err error) {
	how := syscall.LOCK_SH
	if exclusive {
		how = syscall.LOCK_EX
	}
	for {
		err := syscall.Flock(int(file.Fd()), how|syscall.LOCK_NB)
		switch {
		case err == nil:
			return true, nil
		case errors.Is(err, syscall.EWOULDBLOCK):
			return false, nil
		case !errors.Is(err, syscall.EINTR):
			return false, &os.PathError{Op: "lock", Path: file.Name(), Err: err}
		}
	}
}

// unlockFile gives the lock up at once: a process that is just being started may hold the file open for a
// moment longer than we do.
func unlockFile(file *os.File) error {
	return errors.Join(syscall.Flock(int(file.Fd()), syscall.LOCK_UN), file.Close())
}
