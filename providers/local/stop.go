//go:build linux || darwin

package local

import (
	"bytes"
	"slices"
	"sync"
	"syscall"
	"time"
)

// stop begins to end everything a command started; the channel is closed when it is done. It
// asks with TERM, and kills once the grace has passed or the workspace is being disposed.
func (w *Workspace) stop(j *job) <-chan struct{} {
	stopped := make(chan struct{})
	w.calls.join()
	go func() {
		defer w.calls.leave()
		defer close(stopped)
		done := w.ask(j) || w.kill(j)
		if j.stdin != nil {
			j.stdin.Close()
		}
		if !done {
			return // still among the running: Dispose tries again
		}
		<-j.exited
		_, _ = j.reap()
		for _, o := range j.outputs {
			o.finish()
		}
		w.forget(j)
	}()
	return stopped
}

// ask says whether all had ended within the grace.
func (w *Workspace) ask(j *job) bool {
	grace := time.NewTimer(w.killAfter)
	defer grace.Stop()

	var asked []process
	exited := j.exited
	for pause := 2 * time.Millisecond; ; pause = min(pause*3/2, 50*time.Millisecond) {
		if !alive(asked) {
			// All have ended, or nobody was asked yet; those who came since are next.
			found := w.find(j)
			if len(found) == 0 {
				return true
			}
			for _, p := range found {
				if asked != nil || p.group != j.pid { // once is enough
					p.signal(syscall.SIGTERM)
				}
			}
			if asked == nil {
				j.signalGroup(syscall.SIGTERM)
			}
			signalAll(found, syscall.SIGCONT) // what is stopped cannot end
			asked = found
		}
		timer := time.NewTimer(pause)
		select {
		case <-grace.C:
			timer.Stop()
			return false
		case <-w.ending:
			timer.Stop()
			return false
		case <-exited:
			timer.Stop()
			exited = nil
		case <-timer.C:
		}
	}
}

func (w *Workspace) kill(j *job) bool {
	return killAll(stopKillTime, func() []process {
		j.signalGroup(syscall.SIGKILL)
		return w.find(j)
	})
}

// find returns the processes of a command that are alive.
func (w *Workspace) find(j *job) []process {
	t, err := processes()
	if err != nil {
		t = nil
	}
	found := j.members(t, w.shed(j, t))
	if len(found) == 0 && !j.hasExited() {
		// Between its last thread's end and the moment it can be waited for, or there is no table.
		return []process{{pid: j.pid, group: j.pid}}
	}
	return found
}

// shed tells the processes that have left group, session and environment of a command behind: orphans that work
// in the workspace and are no older than the command, when there is no other command
// that they could be of.
func (w *Workspace) shed(j *job, t table) func(process) bool {
	leader, ok := lookup(j.pid)
	if !ok {
		return nil
	}
	alone := sync.OnceValue(func() bool { return w.alone(j, t) })
	return func(p process) bool {
		return p.start >= leader.start && t.orphaned(p) && slices.ContainsFunc(p.places(), func(place string) bool {
			return homeOf(place, w.folder.root) == w.ID()
		}) && alone()
	}
}

// alone says whether the command is the only one of the workspace, with no job of an earlier
// one around.
func (w *Workspace) alone(j *job, t table) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.starting > 0 || w.started != j.number {
		return false // a later one is being, or was, started
	}
	for other := range w.running {
		if other != j {
			return false
		}
	}
	for _, earlier := range w.left {
		if earlier.remains(t) {
			return false
		}
	}
	for _, p := range t {
		environment := p.environment()
		if markedWorkspace(environment) == w.ID() && !bytes.Contains(environment, []byte("\x00"+j.mark+"\x00")) {
			return false
		}
	}
	return true
}
