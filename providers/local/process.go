//go:build linux || darwin

package local

import (
	"os"
	"slices"
	"syscall"
	"time"
)

// A process is one that was alive when the table of processes was read. Its number alone does
// not name it, as numbers are used again: number and start do.
type process struct {
	pid, parent    int
	group, session int
	start          uint64 // in the system's own measure, grows with time
	terminal       bool   // has a controlling one
	dead           bool   // and not reaped yet; never in a table
}

// A table is the processes that were alive, by number.
type table map[int]process

// family returns the processes that are selected, and all their descendants. We ourselves and
// those we descend from are never in it.
func (t table) family(selected func(process) bool) []process {
	forbidden := t.ancestry(os.Getpid())
	children := make(map[int][]process)
	var found []process
	for pid, p := range t {
		if slices.Contains(forbidden, pid) {
			continue
		}
		children[p.parent] = append(children[p.parent], p)
		if selected(p) {
			found = append(found, p)
		}
	}
	in := make(map[int]bool)
	for i := 0; i < len(found); i++ {
		if pid := found[i].pid; !in[pid] {
			in[pid] = true
			found = append(found, children[pid]...)
		}
	}
	slices.SortFunc(found, func(a, b process) int { return a.pid - b.pid })
	return slices.CompactFunc(found, func(a, b process) bool { return a.pid == b.pid })
}

// ancestry is a process and those it descends from.
func (t table) ancestry(pid int) []int {
	line := []int{pid, 1}
	for p, ok := t[pid]; ok && !slices.Contains(line, p.parent); p, ok = t[p.parent] {
		line = append(line, p.parent)
	}
	return line
}

// orphaned says whether a process may be one whose parent has ended: its parent now is
// init, another reaper (init's child, as a rule), or one of our own line. It has no
// terminal, as commands of ours have none. This spares the shell, editor or language server of a
// person who looks into the workspace.
func (t table) orphaned(p process) bool {
	if p.terminal {
		return false
	}
	return t[p.parent].parent == 1 || slices.Contains(t.ancestry(os.Getpid()), p.parent)
}

// alive says whether any of the processes still is.
func alive(processes []process) bool { return slices.ContainsFunc(processes, process.alive) }

func signalAll(processes []process, s syscall.Signal) {
	for _, p := range processes {
		p.signal(s)
	}
}

// killAll kills what find finds until it finds nothing, and says whether that came to be
// within that time. All are stopped first, so that few can multiply while others are being killed.
func killAll(within time.Duration, find func() []process) bool {
	for deadline, pause := time.Now().Add(within), time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		found := find()
		if len(found) == 0 {
			return true
		}
		if time.Now().After(deadline) {
			return false
		}
		signalAll(found, syscall.SIGSTOP)
		signalAll(found, syscall.SIGKILL)
		time.Sleep(pause)
	}
}
