//go:build !linux && !darwin

package workspaces

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
)

// Host fetch needs process groups and file locks; tryLockFile is what refuses it here.

func ownSession(*exec.Cmd) {}

func terminateGroup(leader *os.Process) error { return leader.Kill() }
func killGroup(leader *os.Process) error      { return leader.Kill() }

func tryLockFile(*os.File, bool) (locked bool, err error) {
	return false, fmt.Errorf("%w: repositories cannot be fetched on a %s host", ErrUnsupported, runtime.GOOS)
}

func unlockFile(file *os.File) error { return file.Close() }
