package main

import (
	"bytes"
	"context"
	"embed"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
)

// bug is a small program with a bug in it, and the report of that bug. It needs only sh, so that it
// runs in any image.
//
//go:embed bug
var bug embed.FS

// bundledReport is the report that comes with the bundled repository.
func bundledReport() string {
	data, err := bug.ReadFile("bug/REPORT.md")
	if err != nil {
		panic(err) // embedded: cannot be missing
	}
	return string(data)
}

// bundledRepository makes a git repository of the bundled program below dir and returns its
// file: URL.
func bundledRepository(ctx context.Context, dir string) (string, error) {
	root := filepath.Join(dir, "tally")
	err := fs.WalkDir(bug, "bug", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || path == "bug/REPORT.md" {
			return err
		}
		target := filepath.Join(root, filepath.FromSlash(path[len("bug"):]))
		if entry.IsDir() {
			return os.MkdirAll(target, 0o755)
		}
		data, err := bug.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(target, data, 0o644)
	})
	if err != nil {
		return "", err
	}
	for _, args := range [][]string{
		{"init", "-q", "-b", "main", "--template="},
		{"add", "."},
		{"-c", "user.name=tally", "-c", "user.email=tally@localhost", "-c", "commit.gpgsign=false", "-c", "core.hooksPath=/dev/null", "commit", "-q", "-m", "tally"},
	} {
		git := exec.CommandContext(ctx, "git", args...)
		git.Dir = root
		git.Env = append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null", "GIT_DIR="+filepath.Join(root, ".git"), "GIT_WORK_TREE="+root)
		var stderr bytes.Buffer
		git.Stderr = &stderr
		if err := git.Run(); err != nil {
			return "", fmt.Errorf("git %s: %w: %s", args[0], err, stderr.String())
		}
	}
	return "file://" + root, nil
}
