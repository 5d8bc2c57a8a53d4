package workspaces

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// sizePoll is how often the size of a fetch under way is looked at.
const sizePoll = 250 * time.Millisecond

// A hostFetcher fetches repositories on the host, one commit at a time, into a cache, and writes
// them into workspaces.
//
// A branch, a tag or HEAD always asks the remote, with the credential of this run. Only a full
// commit id of a repository that was fetched without credential is answered by the
// cache alone: whoever may name the repository may see it. What was fetched with a credential is
// kept per scope, and the remote is asked whether it may still be seen.
type hostFetcher struct {
	options HostFetch
	git     hostGit
	cache   *hostCache
	lookup  func(ctx context.Context, network, host string) ([]netip.Addr, error)
	failed  func(error) // gets what goes wrong with the cache behind a fetch that succeeded

	mu     sync.Mutex
	pinned bool // git was seen to be new enough
}

// A fetchedCommit is a commit in the cache, ready to be written into a workspace. It stays there until close.
type fetchedCommit struct {
	Commit string // empty: the remote is empty
	Branch string // where the ref is a branch, or HEAD of one
	Tag    string // where the ref is a tag

	runID, url, ref string
	object          string // the commit, or the annotated tag of it
	shallow         bool   // its parents are not there
	generation      generation
	entry           *cacheEntry // nil: closed
	fetcher         *hostFetcher
}

// newHostFetcher validates the options; it contacts nothing.
func newHostFetcher(options HostFetch, sharesHost bool, failed func(error)) (*hostFetcher, error) {
	f := &hostFetcher{options: options, lookup: net.DefaultResolver.LookupNetIP, failed: failed}
	if options.Credential != nil && sharesHost && !options.CredentialOnSharedHost {
		return nil, errors.New("host fetch: a Credential where commands of a workspace run as our own user needs CredentialOnSharedHost: they might read it from our memory")
	}
	path, err := exec.LookPath("git")
	if err == nil {
		path, err = filepath.Abs(path)
	}
	if err != nil {
		return nil, fmt.Errorf("host fetch: %w", err)
	}
	f.git.path = path
	if options.CAFile != "" {
		authorities, err := os.ReadFile(options.CAFile)
		if err != nil {
			return nil, fmt.Errorf("host fetch: CAFile: %w", err)
		}
		if !x509.NewCertPool().AppendCertsFromPEM(authorities) {
			return nil, fmt.Errorf("host fetch: CAFile %q: no certificate in it", options.CAFile)
		}
		if f.git.caFile, err = filepath.Abs(options.CAFile); err != nil {
			return nil, fmt.Errorf("host fetch: CAFile: %w", err)
		}
	}
	f.cache = &hostCache{maxBytes: options.MaxBytes}
	switch {
	case options.MaxBytes < 0:
		return nil, errors.New("host fetch: negative MaxBytes")
	case options.MaxBytes == 0:
		f.cache.maxBytes = hostCacheMaxBytes
	}
	dir := options.CacheDir
	if dir == "" {
		if dir, err = os.UserCacheDir(); err != nil {
			return nil, fmt.Errorf("host fetch: no CacheDir, and %w", err)
		}
		dir = filepath.Join(dir, "carrel", "repositories")
	}
	if f.cache.dir, err = filepath.Abs(dir); err != nil {
		return nil, fmt.Errorf("host fetch: CacheDir: %w", err)
	}
	return f, nil
}

// fetch fetches one commit of a repository: ref in normal form or, where that is empty, the remote's
// HEAD. The caller closes it. Errors: ErrInvalidInput for an address that may not be
// contacted and for a short commit id, ErrTooLarge for what MaxBytes does not hold, ErrUnsupported
// for a git that is too old, a *CheckoutError for what git says.
func (f *hostFetcher) fetch(ctx context.Context, runID, repository, ref string) (*fetchedCommit, error) {
	if ref == "HEAD" {
		ref = ""
	}
	if isCommitID(ref) {
		ref = strings.ToLower(ref)
	}
	bounded, cancel := context.WithTimeout(ctx, checkoutTimeout)
	defer cancel()
	remote, key, err := f.remote(bounded, runID, repository)
	if err != nil {
		return nil, err
	}
	c := &fetchedCommit{runID: runID, url: repository, ref: ref, fetcher: f}
	fetched := false
	defer func() {
		if !fetched {
			c.close()
		}
	}()
	if c.entry, err = f.cache.open(bounded, key); err == nil {
		err = f.fetchInto(bounded, c, remote)
	}
	if err != nil {
		return nil, f.meaning(ctx, c, err)
	}
	fetched = true
	return c, nil
}

// meaning makes of what went wrong what the caller is to know.
func (f *hostFetcher) meaning(ctx context.Context, c *fetchedCommit, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	var failure *gitFailure
	if !errors.As(err, &failure) && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	if errors.Is(err, ErrTooLarge) {
		return failure.err
	}
	said := &CheckoutError{Step: "fetch", Repository: c.url, Ref: c.ref}
	if failure != nil {
		said.ExitCode, said.Stderr = failure.code, failure.stderr
	}
	if errors.Is(err, context.DeadlineExceeded) {
		said.Stderr += "\ntimed out"
	} else if failure.err != nil {
		said.Stderr += "\n" + failure.err.Error()
	}
	said.Stderr = scriptStderr(Result{Stderr: said.Stderr})
	return said
}

// fetchInto fetches into the entry of c, or finds there what it need not fetch.
func (f *hostFetcher) fetchInto(ctx context.Context, c *fetchedCommit, remote *hostRemote) error {
	unlock, err := c.entry.lockFetch(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	g, err := c.entry.newest()
	if err != nil {
		return err
	}
	if remote.credential == (Credential{}) && isCommitID(c.ref) && g.has(c.ref) {
		return c.settle(g, c.ref, c.ref)
	}
	if !strings.HasPrefix(c.url, "file:") {
		if err := f.checkVersion(ctx, g); err != nil {
			return err
		}
		if remote.pin, err = f.pin(ctx, c.url); err != nil {
			return err
		}
	}
	for {
		if err := g.begin(); err != nil {
			return err
		}
		fresh := g.isFresh()
		err := f.fetchGeneration(ctx, c, remote, g)
		var failure *gitFailure
		if errors.As(err, &failure) && failure.killed {
			return err // nobody looks at what it left: the next fetch begins a new generation
		}
		if fresh && c.Commit == "" {
			return err // nothing to keep
		}
		if err == nil || ctx.Err() != nil || f.isSound(ctx, g) {
			return errors.Join(err, g.end())
		}
		if g, err = c.entry.next(); err != nil {
			return err
		}
	}
}

// isSound says that a repository has all that its refs lead to.
func (f *hostFetcher) isSound(ctx context.Context, g generation) bool {
	return f.git.run(ctx, string(g), nil, nil, nil, "fsck", "--connectivity-only", "--no-dangling") == nil || ctx.Err() != nil
}

func (f *hostFetcher) checkVersion(ctx context.Context, g generation) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.pinned {
		return nil
	}
	err := f.git.checkVersion(ctx, string(g))
	f.pinned = err == nil
	return err
}

// watchSize cancels a fetch that brings more than the cache may hold. The caller calls stop.
func (f *hostFetcher) watchSize(g generation, cancel context.CancelCauseFunc) (stop func()) {
	before, done, ended := sizeOf(string(g)), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		ticker := time.NewTicker(sizePoll)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				if sizeOf(string(g))-before > f.cache.maxBytes {
					cancel(fmt.Errorf("%w: one commit of the repository has more than the %d bytes of HostFetch.MaxBytes", ErrTooLarge, f.cache.maxBytes))
				}
			case <-done:
				return
			}
		}
	}()
	return func() { close(done); <-ended }
}

// fetchGeneration fetches the ref of c in one connection. HEAD costs another before it, since a fetch does not say whose
// branch it is; then only what is new is fetched.
func (f *hostFetcher) fetchGeneration(ctx context.Context, c *fetchedCommit, remote *hostRemote, g generation) error {
	ref := c.ref
	if ref == "" {
		commit, name, err := f.head(ctx, g, remote)
		if err != nil || commit == "" {
			return err
		}
		branch, isBranch := strings.CutPrefix(name, "refs/heads/")
		if isBranch && CheckRef(branch) == nil {
			ref = name
		} else {
			ref = "HEAD"
		}
		if g.has(commit) {
			if ref == name {
				c.Branch = branch
			}
			return c.settle(g, commit, commit)
		}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := f.watchSize(g, cancel)
	defer stop()
	err := f.git.run(ctx, string(g), remote, strings.NewReader(ref+"\n"), nil, "fetch", "--quiet", "--depth=1", "--no-tags",
		"--no-recurse-submodules", "--no-auto-maintenance", "--stdin", remote.url)
	if err != nil {
		return f.shortID(ctx, c, remote, g, err)
	}
	object, branch, tag, err := g.fetched()
	if err != nil {
		return err
	}
	commit, err := f.git.output(ctx, string(g), nil, "rev-parse", "--quiet", "--verify", object+"^{commit}")
	if err != nil {
		var failure *gitFailure
		if errors.As(err, &failure) && failure.code == 1 {
			failure.stderr = "the ref names no commit"
		}
		return err
	}
	if err := f.git.run(ctx, string(g), nil, nil, nil, "update-ref", commitRef(commit), commit); err != nil {
		return err
	}
	c.Branch, c.Tag = branch, tag
	return c.settle(g, commit, object)
}

// settle notes what was fetched.
func (c *fetchedCommit) settle(g generation, commit, object string) (err error) {
	c.Commit, c.object, c.generation = commit, object, g
	c.shallow, err = g.isShallow(commit)
	return err
}

// close lets the cache remove the commit. It may be called again.
func (c *fetchedCommit) close() {
	if c.entry == nil {
		return
	}
	err := c.entry.close()
	c.entry = nil
	if err = errors.Join(err, c.fetcher.cache.sweep()); err != nil {
		c.fetcher.failed(fmt.Errorf("the cache of fetched repositories: %w", err))
	}
}
