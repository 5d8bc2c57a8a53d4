package local

import (
	"bufio"
	"os"
	"strconv"
	"strings"
	"syscall"
	"unsafe"
)

const descriptorDir = "/proc/self/fd"

// awaitExit waits until a child of ours has ended, and leaves it unreaped: until it is
// reaped, its number means nobody else, as process, group or session.
func awaitExit(pid int) error {
	const idPID = 1     // P_PID
	var info [16]uint64 // siginfo_t has 128 bytes
	const options = syscall.WEXITED | syscall.WNOWAIT
	for {
		_, _, errno := syscall.Syscall6(syscall.SYS_WAITID, idPID, uintptr(pid), uintptr(unsafe.Pointer(&info)), options, 0, 0)
		switch errno {
		case 0:
			return nil
		case syscall.EINTR:
		default:
			return os.NewSyscallError("waitid", errno)
		}
	}
}

// renameAt renames a file from one open directory into another.
func renameAt(from *os.File, oldName string, to *os.File, newName string) error {
	for {
		err := syscall.Renameat(int(from.Fd()), oldName, int(to.Fd()), newName)
		if err != syscall.EINTR {
			return os.NewSyscallError("renameat", err)
		}
	}
}

// inheritedIgnored returns the signals up to 31 that our process ignores.
func inheritedIgnored() []syscall.Signal {
	f, err := os.Open("/proc/self/status")
	if err != nil {
		return nil
	}
	defer f.Close()
	var ignored []syscall.Signal
	for lines := bufio.NewScanner(f); lines.Scan(); {
		value, ok := strings.CutPrefix(lines.Text(), "SigIgn:")
		if !ok {
			continue
		}
		mask, err := strconv.ParseUint(strings.TrimSpace(value), 16, 64)
		if err != nil {
			return nil
		}
		for s := syscall.Signal(1); s < 32; s++ {
			if mask&(1<<(s-1)) != 0 {
				ignored = append(ignored, s)
			}
		}
		break
	}
	return ignored
}
