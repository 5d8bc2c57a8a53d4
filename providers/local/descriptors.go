//go:build linux || darwin

package local

import (
	"os"
	"strconv"
	"syscall"
)

// standardFiles returns the files of a new process: its standard streams and, behind them,
// nothing at the place of each descriptor of ours that an exec would pass on. Go marks its own as
// close-on-exec; others come from who started our process, or from C code.
func standardFiles(stdin, stdout, stderr *os.File) []*os.File {
	files := make([]*os.File, max(2, lastInheritable())+1)
	files[0], files[1], files[2] = stdin, stdout, stderr
	return files
}

// lastInheritable is the highest descriptor that an exec would pass on.
func lastInheritable() int {
	dir, err := os.Open(descriptorDir)
	if err != nil {
		return 2
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return 2
	}
	last := 2
	for _, name := range names {
		fd, err := strconv.Atoi(name)
		if err != nil || fd <= last {
			continue
		}
		flags, _, errno := syscall.RawSyscall(syscall.SYS_FCNTL, uintptr(fd), syscall.F_GETFD, 0)
		if errno == 0 && flags&syscall.FD_CLOEXEC == 0 {
			last = fd
		}
	}
	return last
}
