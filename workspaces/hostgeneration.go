package workspaces

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// generationMaxPacks is how many packs a generation may hold: each fetch of something new adds one, and
// nothing ever packs them together. A new generation costs one fetch of everything.
const generationMaxPacks = 50

// A generation is the path of a bare repository of the cache. Its files besides git's:
//
//	unfinished      a fetch is under way, or its process died
//	corrupt         it lacks objects it should have
//	no-authorities  an empty directory
//	trusting        a git configuration that trusts any directory's owner
//
// Each commit it was fetched for is refs/carrel/commits/<id>, set when all of it is there.
type generation string

func (g generation) file(name string) string { return filepath.Join(string(g), name) }

func noAuthorities(repository string) string  { return generation(repository).file("no-authorities") }
func trustingConfig(repository string) string { return generation(repository).file("trusting") }

// make makes an empty repository, unfinished. git init would do the same with a process more, and
// templates to keep away.
func (g generation) make() error {
	for _, dir := range []string{"", "objects", "refs", "no-authorities"} {
		if err := os.Mkdir(g.file(dir), 0o700); err != nil {
			return err
		}
	}
	for name, content := range map[string]string{
		"unfinished": "",
		"HEAD":       "ref: refs/heads/none\n",
		"config":     "[core]\n\trepositoryFormatVersion = 0\n\tbare = true\n",
		// What runs in a directory of the host to read it takes no order from that directory's
		// own configuration: uploadpack.packObjectsHook counts only outside of it.
		"trusting": "[safe]\n\tdirectory = *\n",
	} {
		if err := os.WriteFile(g.file(name), []byte(content), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// reliable says that the repository may be used again: no fetch of it was interrupted, nothing is known to be missing,
// and it has not grown into too many packs.
func (g generation) reliable() bool {
	if isThere(g.file("unfinished")) || isThere(g.file("corrupt")) || !isThere(g.file("HEAD")) {
		return false
	}
	files, err := os.ReadDir(g.file("objects/pack"))
	packs := 0
	for _, file := range files {
		if strings.HasSuffix(file.Name(), ".pack") {
			packs++
		}
	}
	return ignoreNotExist(err) == nil && packs <= generationMaxPacks
}

// begin marks that a fetch is under way, end that it has ended and left nothing half done.
func (g generation) begin() error { return os.WriteFile(g.file("unfinished"), nil, 0o600) }
func (g generation) end() error   { return os.Remove(g.file("unfinished")) }

// isFresh says that nothing was ever fetched into it.
func (g generation) isFresh() bool { return !isThere(g.file("refs/carrel")) }

// spoil marks that something is missing. Another fetch may be under way.
func (g generation) spoil() error { return os.WriteFile(g.file("corrupt"), nil, 0o600) }

func commitRef(commit string) string { return "refs/carrel/commits/" + commit }

// has says that a commit was fetched, with all that belongs to it.
func (g generation) has(commit string) bool { return isThere(g.file(commitRef(commit))) }

// isShallow says that the parents of a commit are not there.
func (g generation) isShallow(commit string) (bool, error) {
	grafts, err := os.ReadFile(g.file("shallow"))
	if err != nil {
		return false, ignoreNotExist(err)
	}
	return slices.Contains(strings.Fields(string(grafts)), commit), nil
}

// fetched reads what FETCH_HEAD says of the one thing that was fetched: its object and, where its name was one of those, the
// branch or tag.
func (g generation) fetched() (object, branch, tag string, err error) {
	head, err := os.ReadFile(g.file("FETCH_HEAD"))
	if err != nil {
		return "", "", "", err
	}
	line, _, _ := strings.Cut(string(head), "\n")
	fields := strings.SplitN(line, "\t", 3)
	if len(fields) != 3 || !isCommitID(fields[0]) {
		return "", "", "", fmt.Errorf("malformed FETCH_HEAD %s", quoted(line))
	}
	for prefix, name := range map[string]*string{"branch '": &branch, "tag '": &tag} {
		if rest, ok := strings.CutPrefix(fields[2], prefix); ok {
			*name, _, _ = strings.Cut(rest, "' of ")
		}
	}
	return fields[0], branch, tag, nil
}
