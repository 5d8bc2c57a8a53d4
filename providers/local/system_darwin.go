package local

import (
	"os"
	"syscall"
	"unsafe"
)

const (
	descriptorDir = "/dev/fd"

	sysRenameat = 465 // the syscall package's table is older
)

// awaitExit waits until a child of ours has ended, and leaves it unreaped: until it is
// reaped, its number means nobody else, as process, group or session. waitid would not do, as it also
// returns for a stopped child here.
func awaitExit(pid int) error {
	queue, err := syscall.Kqueue()
	if err != nil {
		return os.NewSyscallError("kqueue", err)
	}
	defer syscall.Close(queue)
	syscall.CloseOnExec(queue)
	var exit syscall.Kevent_t
	syscall.SetKevent(&exit, pid, syscall.EVFILT_PROC, syscall.EV_ADD|syscall.EV_ONESHOT)
	exit.Fflags = syscall.NOTE_EXIT
	events := make([]syscall.Kevent_t, 1)
	for {
		_, err := syscall.Kevent(queue, []syscall.Kevent_t{exit}, events, nil)
		switch err {
		case nil, syscall.ESRCH: // ended before we asked
			return nil
		case syscall.EINTR:
		default:
			return os.NewSyscallError("kevent", err)
		}
	}
}

// renameAt renames a file from one open directory into another.
func renameAt(from *os.File, oldName string, to *os.File, newName string) error {
	old, err := syscall.BytePtrFromString(oldName)
	if err != nil {
		return err
	}
	name, err := syscall.BytePtrFromString(newName)
	if err != nil {
		return err
	}
	for {
		_, _, errno := syscall.Syscall6(sysRenameat, from.Fd(), uintptr(unsafe.Pointer(old)), to.Fd(), uintptr(unsafe.Pointer(name)), 0, 0)
		switch errno {
		case 0:
			return nil
		case syscall.EINTR:
		default:
			return os.NewSyscallError("renameat", errno)
		}
	}
}

// inheritedIgnored: the system does not say.
func inheritedIgnored() []syscall.Signal { return nil }
