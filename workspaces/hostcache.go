package workspaces

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// hostCacheMaxBytes is HostFetch.MaxBytes where that is zero.
const hostCacheMaxBytes = 2 << 30

// lockPoll is how often a lock that another fetch holds is tried.
const lockPoll = 20 * time.Millisecond

// A hostCache is a directory of repositories that were fetched on the host, which processes may share. It
// holds, per key,
//
//	<key>/use    locked shared by who uses the entry, exclusively by who removes it;
//	             its time is when it was last used
//	<key>/fetch  locked by who fetches
//	<key>/<n>    generations of a bare repository, of which the newest counts
//
// A generation that cannot be relied on is followed by a new one, and removed once nobody uses the
// entry. What is removed is first renamed to trash-<random>, so that it is never there in part.
type hostCache struct {
	dir      string
	maxBytes int64

	sweeping sync.Mutex
}

// A cacheEntry is an entry in use: it stays until close.
type cacheEntry struct {
	dir string
	use *os.File
}

var cacheKey = regexp.MustCompile(`^[0-9a-f]{64}$`)

const trashPrefix = "trash-"

// open returns the entry of a key, made when there is none. The caller closes it.
func (c *hostCache) open(ctx context.Context, key string) (*cacheEntry, error) {
	if err := os.MkdirAll(c.dir, 0o700); err != nil {
		return nil, err
	}
	info, err := os.Stat(c.dir)
	if err != nil {
		return nil, err
	}
	if info.Mode().Perm()&0o022 != 0 {
		return nil, fmt.Errorf("the cache directory %s may be written by others", c.dir)
	}
	dir := filepath.Join(c.dir, key)
	for {
		if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, err
		}
		use, err := openLocked(ctx, filepath.Join(dir, "use"), false)
		if err == nil {
			now := time.Now()
			return &cacheEntry{dir: dir, use: use}, os.Chtimes(use.Name(), now, now)
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		// It was removed at this moment.
	}
}

// openLocked opens and locks a file, made when there is none. Where it was removed before it was locked, the
// error is fs.ErrNotExist.
func openLocked(ctx context.Context, path string, exclusive bool) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		locked, err := tryLockFile(file, exclusive)
		if locked {
			break
		}
		if err == nil {
			timer := time.NewTimer(lockPoll)
			select {
			case <-timer.C:
				continue
			case <-ctx.Done():
				timer.Stop()
				err = context.Cause(ctx)
			}
		}
		return nil, errors.Join(err, file.Close())
	}
	if err := wasRemoved(file); err != nil {
		return nil, errors.Join(err, unlockFile(file))
	}
	return file, nil
}

// wasRemoved returns fs.ErrNotExist where another file, or none, has the name of an open one by now.
func wasRemoved(file *os.File) error {
	opened, err := file.Stat()
	if err != nil {
		return err
	}
	there, err := os.Stat(file.Name())
	if err == nil && !os.SameFile(opened, there) {
		err = fs.ErrNotExist
	}
	return err
}

func (e *cacheEntry) close() error { return unlockFile(e.use) }

// lockFetch waits until nobody else fetches into the entry.
func (e *cacheEntry) lockFetch(ctx context.Context) (unlock func(), err error) {
	file, err := openLocked(ctx, filepath.Join(e.dir, "fetch"), true)
	if err != nil {
		return nil, err
	}
	return func() { _ = unlockFile(file) }, nil
}

// newest returns the generation to fetch into. The caller holds the lock of the fetch.
func (e *cacheEntry) newest() (generation, error) {
	last, err := lastGeneration(e.dir)
	if err != nil {
		return "", err
	}
	if last > 0 {
		if g := generation(filepath.Join(e.dir, strconv.Itoa(last))); g.reliable() {
			return g, nil
		}
	}
	return e.next()
}

// next begins a new generation: an empty repository.
func (e *cacheEntry) next() (generation, error) {
	last, err := lastGeneration(e.dir)
	if err != nil {
		return "", err
	}
	g := generation(filepath.Join(e.dir, strconv.Itoa(last+1)))
	return g, g.make()
}

func lastGeneration(dir string) (int, error) {
	files, err := os.ReadDir(dir)
	if err != nil {
		return 0, err
	}
	last := 0
	for _, file := range files {
		if n, err := strconv.Atoi(file.Name()); err == nil {
			last = max(last, n)
		}
	}
	return last, nil
}

// sweep removes what is no longer of use and then, while the cache is too large, what was not used for
// longest. It leaves alone what is in use, and what is not of the cache.
func (c *hostCache) sweep() error {
	c.sweeping.Lock()
	defer c.sweeping.Unlock()
	files, err := os.ReadDir(c.dir)
	if err != nil {
		return err
	}
	type kept struct {
		dir   string
		used  time.Time
		bytes int64
	}
	var entries []kept
	var total int64
	var failures []error
	for _, file := range files {
		path := filepath.Join(c.dir, file.Name())
		if strings.HasPrefix(file.Name(), trashPrefix) {
			failures = append(failures, os.RemoveAll(path))
		}
		if !cacheKey.MatchString(file.Name()) {
			continue
		}
		failures = append(failures, c.removeStale(path))
		used, err := os.Stat(filepath.Join(path, "use"))
		if err != nil {
			continue // being made or removed by somebody else
		}
		bytes := sizeOf(path)
		total += bytes
		entries = append(entries, kept{path, used.ModTime(), bytes})
	}
	slices.SortFunc(entries, func(a, b kept) int { return a.used.Compare(b.used) })
	for _, entry := range entries {
		if total <= c.maxBytes {
			break
		}
		removed, err := c.unused(entry.dir, func() error { return c.discard(entry.dir) })
		if removed && err == nil {
			total -= entry.bytes
		}
		failures = append(failures, err)
	}
	return errors.Join(failures...)
}

// removeStale removes the generations of an entry that nobody will use again, and the entry where
// none is left.
func (c *hostCache) removeStale(dir string) error {
	if stale, err := staleIn(dir); err != nil || len(stale) == 0 {
		return ignoreNotExist(err)
	}
	_, err := c.unused(dir, func() error {
		stale, err := staleIn(dir) // it may have been used since
		for _, path := range stale {
			err = errors.Join(err, c.discard(path))
		}
		return err
	})
	return err
}

// staleIn lists the generations of an entry that nobody will use again, or the entry itself.
func staleIn(dir string) (stale []string, err error) {
	last, err := lastGeneration(dir)
	if err != nil {
		return nil, err
	}
	if !generation(filepath.Join(dir, strconv.Itoa(last))).reliable() {
		return []string{dir}, nil
	}
	for n := range last {
		if g := filepath.Join(dir, strconv.Itoa(n)); isThere(g) {
			stale = append(stale, g)
		}
	}
	return stale, nil
}

// unused does something with an entry unless somebody uses it.
func (c *hostCache) unused(dir string, do func() error) (done bool, err error) {
	use, err := os.OpenFile(filepath.Join(dir, "use"), os.O_RDWR, 0)
	if err != nil {
		return false, ignoreNotExist(err)
	}
	locked, err := tryLockFile(use, true)
	if !locked {
		return false, errors.Join(err, use.Close())
	}
	if err := wasRemoved(use); err != nil {
		return false, errors.Join(ignoreNotExist(err), unlockFile(use))
	}
	return true, errors.Join(do(), unlockFile(use))
}

// discard removes a directory of the cache at once.
func (c *hostCache) discard(dir string) error {
	trash := filepath.Join(c.dir, trashPrefix+rand.Text())
	if err := os.Rename(dir, trash); err != nil {
		return err
	}
	return os.RemoveAll(trash)
}

// sizeOf is what a directory takes on the disk, about: every file counts for a block at least.
func sizeOf(dir string) (bytes int64) {
	const block = 4096
	_ = filepath.WalkDir(dir, func(_ string, file fs.DirEntry, err error) error {
		if err != nil {
			return nil //nolint:nilerr // removed meanwhile
		}
		bytes += block
		if info, err := file.Info(); err == nil && file.Type().IsRegular() {
			bytes += info.Size()
		}
		return nil
	})
	return bytes
}

func isThere(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

func ignoreNotExist(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
