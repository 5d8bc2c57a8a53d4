package local

import (
	"maps"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// processes reads the table of processes.
func processes() (table, error) {
	t, err := list("-ax")
	maps.DeleteFunc(t, func(_ int, p process) bool { return p.dead })
	return t, err
}

// list asks ps, as the system shows the table to no system call of the standard library.
func list(which ...string) (table, error) {
	command := exec.Command("/bin/ps", append(which, "-o", "pid=,ppid=,pgid=,sess=,tdev=,stat=,lstart=")...)
	command.Env = []string{"LC_ALL=C", "TZ=UTC"}
	out, err := command.Output()
	if err != nil {
		return nil, err
	}
	t := make(table)
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		if len(fields) != 11 {
			continue
		}
		var p process
		var failed error
		for i, field := range []*int{&p.pid, &p.parent, &p.group} {
			n, err := strconv.Atoi(fields[i])
			*field = n
			if err != nil {
				failed = err
			}
		}
		started, err := time.Parse("Mon Jan 2 15:04:05 2006", strings.Join(fields[6:], " "))
		if failed != nil || err != nil {
			continue
		}
		// ps shows an address as the session; the call knows better.
		p.session, _ = syscall.Getsid(p.pid)
		p.start = uint64(started.Unix())
		p.dead = strings.HasPrefix(fields[5], "Z")
		p.terminal = strings.Trim(fields[4], "?-") != ""
		t[p.pid] = p
	}
	return t, nil
}

// lookup returns the process of a number, if there is one.
func lookup(pid int) (process, bool) {
	t, err := list("-p", strconv.Itoa(pid))
	if err != nil {
		return process{}, false
	}
	p, ok := t[pid]
	return p, ok
}

// alive says whether the same process is still alive.
func (p process) alive() bool {
	now, ok := lookup(p.pid)
	return ok && !now.dead && now.start == p.start
}

// signal signals the process. There is no handle to take here; what was found a moment ago has
// not given its number to another yet.
func (p process) signal(s syscall.Signal) {
	_ = syscall.Kill(p.pid, s) // what cannot be signalled is found again
}

// environment and places: the system does not say.
func (p process) environment() []byte { return nil }

func (p process) places() []string { return nil }
