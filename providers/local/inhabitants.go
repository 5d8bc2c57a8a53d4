//go:build linux || darwin

package local

import (
	"path/filepath"
	"strings"
)

// inhabitants returns the processes that belong to certain workspaces below a root: those with a
// mark, and the orphans that work in a workspace's folder, have their root there or were
// started from there. All with their descendants.
func inhabitants(t table, root string, of func(id string) bool) []process {
	return t.family(func(p process) bool {
		if id := markedWorkspace(p.environment()); id != "" && of(id) {
			return true
		}
		for _, place := range p.places() {
			if id := homeOf(place, root); id != "" && of(id) {
				return t.orphaned(p)
			}
		}
		return false
	})
}

// homeOf returns the name of the folder below root that a place is in.
func homeOf(place, root string) string {
	inside, ok := strings.CutPrefix(place, strings.TrimSuffix(root, "/")+"/")
	if !ok {
		return ""
	}
	id, _, _ := strings.Cut(filepath.ToSlash(inside), "/")
	return id
}
