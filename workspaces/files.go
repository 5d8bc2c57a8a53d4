package workspaces

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
)

// fileLocks serialises the writes of one file. The zero value is ready.
type fileLocks struct {
	mu   sync.Mutex
	held map[string]chan struct{} // closed when the lock is free again
}

// lock waits for the file's turn, or for the end of ctx. The caller calls unlock.
func (l *fileLocks) lock(ctx context.Context, path string) (unlock func(), err error) {
	for {
		l.mu.Lock()
		busy, ok := l.held[path]
		if !ok {
			break
		}
		l.mu.Unlock()
		select {
		case <-busy:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	defer l.mu.Unlock()
	if l.held == nil {
		l.held = make(map[string]chan struct{})
	}
	free := make(chan struct{})
	l.held[path] = free
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.held, path)
		close(free)
	}, nil
}

// updater is what the manager hands out; Update needs its locks.
type updater interface {
	update(ctx context.Context, path string, change func(at string, old []byte) ([]byte, error)) error
}

// Update reads a file, gives its content to change and writes what that returns, unless
// change fails or returns content equal to the old. at is where path leads, relative to the root, as far
// as known: a link is noticed at the write, and change is then called again with where it
// led. So change may be called more than once and must depend on its arguments alone.
//
// Updates and writes of one file, by any spelling and through any link, run one after the other;
// those of different files run in parallel. A missing file is fs.ErrNotExist. workspace must come from a
// Manager, else the error is ErrUnsupported.
func Update(ctx context.Context, workspace Workspace, path string, change func(at string, old []byte) ([]byte, error)) error {
	u, ok := As[updater](workspace)
	if !ok {
		return fmt.Errorf("%w: update of a workspace that no manager holds", ErrUnsupported)
	}
	return u.update(ctx, path, change)
}

// errUnchanged ends an update that has nothing to write.
var errUnchanged = errors.New("unchanged")

func (v *view) update(ctx context.Context, path string, change func(at string, old []byte) ([]byte, error)) error {
	err := v.writeWith(ctx, path, func(path, at string) ([]byte, error) {
		old, err := v.ReadFile(ctx, path)
		if err != nil {
			return nil, err
		}
		data, err := change(at, old)
		if err == nil && bytes.Equal(data, old) {
			err = errUnchanged
		}
		return data, err
	})
	if errors.Is(err, errUnchanged) {
		return nil
	}
	return err
}
