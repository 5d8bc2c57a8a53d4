package local

import (
	"bytes"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// processes reads the table of processes.
func processes() (table, error) {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	t := make(table, len(names))
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil {
			if p, ok := lookup(pid); ok && !p.dead {
				t[pid] = p
			}
		}
	}
	return t, nil
}

// The fields of /proc/<pid>/stat that follow the name, see proc(5).
const (
	statState = iota
	statParent
	statGroup
	statSession
	statTerminal
	_
	statFlags
	statThreads = 17
	statStart   = 19

	kernelThread = 0x00200000 // PF_KTHREAD
)

// lookup returns the process of a number, if there is one.
func lookup(pid int) (process, bool) {
	data, err := os.ReadFile(procPath(pid, "stat"))
	if err != nil {
		return process{}, false
	}
	// The name, in parentheses, may hold anything.
	fields := strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:]))
	if len(fields) <= statStart {
		return process{}, false
	}
	number := func(field int) int {
		n, _ := strconv.Atoi(fields[field])
		return n
	}
	if number(statFlags)&kernelThread != 0 {
		return process{}, false
	}
	start, err := strconv.ParseUint(fields[statStart], 10, 64)
	return process{
		pid:      pid,
		parent:   number(statParent),
		group:    number(statGroup),
		session:  number(statSession),
		terminal: number(statTerminal) != 0,
		start:    start,
		// With more threads, only the first has ended.
		dead: strings.ContainsAny(fields[statState], "XxZ") && number(statThreads) <= 1,
	}, err == nil
}

func procPath(pid int, name string) string { return "/proc/" + strconv.Itoa(pid) + "/" + name }

// alive says whether the same process is still alive.
func (p process) alive() bool {
	now, ok := lookup(p.pid)
	return ok && !now.dead && now.start == p.start
}

// signal signals the process and never another that got its number: the handle, a pidfd,
// is taken before the look at who that is.
func (p process) signal(s syscall.Signal) {
	handle, err := os.FindProcess(p.pid)
	if err != nil {
		return
	}
	defer func() { _ = handle.Release() }()
	if p.alive() {
		_ = handle.Signal(s) // what cannot be signalled is found again
	}
}

// environment returns the variables a process was started with, each with a NUL before and
// after; empty when it has none or does not show them.
func (p process) environment() []byte {
	data, err := os.ReadFile(procPath(p.pid, "environ"))
	if err != nil || len(data) == 0 {
		return nil
	}
	return append(append(make([]byte, 0, len(data)+2), 0), append(data, 0)...)
}

// places returns the directories and the file by which a process may belong to a folder: the one
// it works in, its root, and its program.
func (p process) places() []string {
	var places []string
	for _, name := range []string{"cwd", "exe", "root"} {
		if place, err := os.Readlink(procPath(p.pid, name)); err == nil && place != "/" {
			places = append(places, strings.TrimSuffix(place, " (deleted)"))
		}
	}
	return places
}
