//go:build linux || darwin

package local

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

const (
	managedBy = "carrel"
	component = "workspace"

	labelSuffix   = ".json"
	labelMaxBytes = 64 << 10
)

// A label says whose a workspace's folder is. It is a file beside the folder, so that it can
// be written before the folder exists and removed after it has gone: at no moment is
// there a folder that no collection would recognise.
type label struct {
	ManagedBy     string    `json:"carrel.dev/managed-by"`
	Component     string    `json:"carrel.dev/component"`
	Workspace     string    `json:"carrel.dev/workspace"`
	Deployment    string    `json:"carrel.dev/deployment"`
	Run           string    `json:"carrel.dev/run"`
	Repository    string    `json:"carrel.dev/repository,omitempty"`
	RepositoryKey string    `json:"carrel.dev/repository-key,omitempty"`
	Ref           string    `json:"carrel.dev/ref,omitempty"`
	Commit        string    `json:"carrel.dev/commit,omitempty"`
	CreatedAt     time.Time `json:"carrel.dev/created-at"`
	// ExpiresAt is text: what cannot be read must not be taken for another time.
	ExpiresAt string `json:"carrel.dev/expires-at"`
}

func labelPath(root, id string) string { return filepath.Join(root, id+labelSuffix) }

// writeLabel writes a new label and locks it: while the file that it returns is open, living says
// so in every process.
func writeLabel(root string, l label) (*os.File, error) {
	data, err := json.MarshalIndent(l, "", "\t")
	if err != nil {
		return nil, err
	}
	path := labelPath(root, l.Workspace)
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	err = flock(f, syscall.LOCK_EX)
	if err == nil {
		_, err = f.Write(append(data, '\n'))
	}
	if err != nil {
		return nil, errors.Join(err, f.Close(), os.Remove(path))
	}
	return f, nil
}

// readLabel returns the label of a workspace of ours; everything else is an error.
func readLabel(root, id string) (label, error) {
	f, err := openLabel(root, id)
	if err != nil {
		return label{}, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, labelMaxBytes))
	if err != nil {
		return label{}, err
	}
	var l label
	if err := json.Unmarshal(data, &l); err != nil {
		return label{}, err
	}
	if l.ManagedBy != managedBy || l.Component != component || l.Workspace != id {
		return label{}, fmt.Errorf("%q is not the label of a workspace", f.Name())
	}
	return l, nil
}

// openLabel does not wait for a pipe, and opens no link.
func openLabel(root, id string) (*os.File, error) {
	return os.OpenFile(labelPath(root, id), os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
}

// living says whether the process that made the workspace is alive, and has not disposed it. A
// lock ends with its process, whatever happens to it, and no number is used twice.
func living(root, id string) (bool, error) {
	f, err := openLabel(root, id)
	if err != nil {
		return false, err
	}
	defer f.Close()
	err = flock(f, syscall.LOCK_SH|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return true, nil
	}
	return false, err
}

func flock(f *os.File, how int) error {
	for {
		err := syscall.Flock(int(f.Fd()), how)
		if err != syscall.EINTR {
			return err
		}
	}
}
