//go:build linux || darwin

package local

import (
	"bytes"
	"fmt"
	"os"
	"sync"
	"syscall"

	"github.com/carrel-dev/carrel/workspaces"
)

// A job is a command that was started, with all that it started in turn.
type job struct {
	process *os.Process
	pid     int    // also the number of its group and of its session
	number  int    // counts the workspace's commands
	mark    string // the variable that its processes inherit, with its value

	exited  chan struct{} // closed when the command has ended; it is not reaped yet
	failure error         // set before, when that cannot be told

	stdin   *os.File // our end; nil where the command has none
	outputs [2]*output

	mu        sync.Mutex
	reaped    bool           // its number may mean somebody else
	known     map[int]uint64 // the start of every process of it that was seen, by number
	strangers map[int]uint64 // of every process that does not have the mark
}

// wait ends with the command.
func (j *job) wait() {
	j.failure = awaitExit(j.pid)
	close(j.exited)
}

func (j *job) hasExited() bool {
	select {
	case <-j.exited:
		return true
	default:
		return false
	}
}

// reap takes the exit code of a command that has ended.
func (j *job) reap() (code int, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.reaped = true
	if j.failure != nil {
		return 0, fmt.Errorf("%w: %w", workspaces.ErrOutcomeUnknown, j.failure)
	}
	state, err := j.process.Wait()
	if err != nil {
		return 0, fmt.Errorf("%w: %w", workspaces.ErrOutcomeUnknown, err)
	}
	status := state.Sys().(syscall.WaitStatus)
	if status.Signaled() {
		return exitSignal + int(status.Signal()), nil
	}
	return status.ExitStatus(), nil
}

// signalGroup signals the command's own group, all of it at once.
func (j *job) signalGroup(s syscall.Signal) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if !j.reaped {
		_ = syscall.Kill(-j.pid, s)
	}
}

// leavesGroup says whether a command that was reaped just now has left others in its group.
func (j *job) leavesGroup() bool { return syscall.Kill(-j.pid, 0) != syscall.ESRCH }

// members returns the processes of the job in a table, and remembers them. It takes those for
// members that also says are.
func (j *job) members(t table, also func(process) bool) []process {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.known == nil {
		j.known, j.strangers = make(map[int]uint64), make(map[int]uint64)
	}
	ours := j.numberIsOurs(t)
	members := t.family(func(p process) bool {
		return ours && (p.group == j.pid || p.session == j.pid) || j.knows(p) || j.marked(p) || also != nil && also(p)
	})
	for _, p := range members {
		j.known[p.pid] = p.start
	}
	return members
}

// numberIsOurs says whether the number of the job's group and session still means them: it
// is not used again before the command is reaped and the last process of both has ended.
func (j *job) numberIsOurs(t table) bool {
	if !j.reaped {
		return true
	}
	for pid := range j.known {
		if p, ok := t[pid]; ok && j.knows(p) && (p.group == j.pid || p.session == j.pid) {
			return true
		}
	}
	return false
}

func (j *job) knows(p process) bool {
	start, ok := j.known[p.pid]
	return ok && start == p.start
}

// marked looks at a process once: who was started without the mark does not get it later.
func (j *job) marked(p process) bool {
	if start, ok := j.strangers[p.pid]; ok && start == p.start {
		return false
	}
	environment := p.environment()
	if bytes.Contains(environment, []byte("\x00"+j.mark+"\x00")) {
		return true
	}
	if len(environment) > 0 { // a process that is about to start a program shows none
		j.strangers[p.pid] = p.start
	}
	return false
}

// newMark makes the mark of a command.
func newMark(workspace string) string { return execEnv + "=" + workspace + "." + randomHex(8) }

// markedWorkspace returns the id of the workspace whose mark is in an environment.
func markedWorkspace(environment []byte) string {
	_, rest, ok := bytes.Cut(environment, []byte("\x00"+execEnv+"="))
	if !ok {
		return ""
	}
	id, _, _ := bytes.Cut(rest, []byte("."))
	return string(id)
}
