//go:build linux || darwin

package local

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/carrel-dev/carrel/workspaces"
)

const (
	// execEnv names the variable by which the processes of a command are recognised.
	execEnv = "CARREL_EXEC_ID"

	defaultPath = "/usr/local/bin:/usr/bin:/bin"
)

// ownEnv lists the variables that say where a command runs and which it is; nobody may set them.
var ownEnv = [...]string{execEnv, workspaces.WorkspaceEnv, "PWD"}

// environment returns what all commands of a workspace start with, sorted: a few variables of
// its own, and over them the layers, the last of which wins.
func environment(f *folder, layers ...map[string]string) []string {
	path := os.Getenv("PATH")
	if path == "" {
		path = defaultPath
	}
	env := map[string]string{
		"PATH":   path,
		"HOME":   filepath.Join(f.path, homeDir),
		"TMPDIR": filepath.Join(f.path, tmpDir),
		"LANG":   "C.UTF-8",
		"CI":     "true",

		// HOME keeps the user's configuration out, this the system's.
		"GIT_CONFIG_NOSYSTEM": "1",
		"GIT_TERMINAL_PROMPT": "0",
		// A workspace without a repository must not find one that the root happens to lie in.
		"GIT_CEILING_DIRECTORIES": f.path,
	}
	for _, layer := range layers {
		maps.Copy(env, layer)
	}
	for _, name := range ownEnv {
		delete(env, name)
	}
	list := make([]string, 0, len(env)+1)
	for _, name := range slices.Sorted(maps.Keys(env)) {
		list = append(list, name+"="+env[name])
	}
	return append(list, workspaces.WorkspaceEnv+"="+f.dir())
}

// commandEnv is the environment of one command: the workspace's, over it the command's own.
func commandEnv(base []string, extra map[string]string, dir, mark string) []string {
	env := make([]string, 0, len(base)+len(extra)+2)
	for _, variable := range base {
		name, _, _ := strings.Cut(variable, "=")
		if _, replaced := extra[name]; !replaced || slices.Contains(ownEnv[:], name) {
			env = append(env, variable)
		}
	}
	for name, value := range extra {
		if !slices.Contains(ownEnv[:], name) {
			env = append(env, name+"="+value)
		}
	}
	return append(env, "PWD="+dir, mark)
}

// lookupEnv returns a variable of a list.
func lookupEnv(env []string, name string) string {
	for _, variable := range env {
		if value, ok := strings.CutPrefix(variable, name+"="); ok {
			return value
		}
	}
	return ""
}
