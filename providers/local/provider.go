//go:build linux || darwin

package local

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/carrel-dev/carrel/workspaces"
)

// Name is what Provider.Name returns.
const Name = "local"

// Options configure a Provider. The zero value works.
type Options struct {
	// Root is the directory below which workspaces get their folders. It is made, with mode
	// 0700, when the first workspace is. Processes with the same Root collect each
	// other's leftovers. Empty: carrel-workspaces-<uid> in the system's temporary directory, which
	// must then be ours alone.
	Root string

	// Env is added to the environment of every command. The manager's and the command's win.
	Env map[string]string

	// Limits: only Lifetime can be enforced, so that nothing else may be set.
	Limits workspaces.Limits
}

// A Provider makes workspaces that are directories of the host. It is safe for
// concurrent use and holds nothing that needs closing.
type Provider struct {
	root      string
	ownRoot   bool // the default root, whose name anybody can guess
	env       map[string]string
	lifetime  time.Duration
	killAfter time.Duration
	signals   dropped
}

var (
	_ workspaces.Provider   = (*Provider)(nil)
	_ workspaces.Collector  = (*Provider)(nil)
	_ workspaces.HostSharer = (*Provider)(nil)
)

// New returns a provider. It touches nothing. Its errors match workspaces.ErrInvalidConfig, and
// for a limit that cannot be enforced workspaces.ErrUnsupported besides.
func New(options Options) (*Provider, error) {
	p := &Provider{
		root:      options.Root,
		env:       maps.Clone(options.Env),
		lifetime:  options.Limits.Lifetime,
		killAfter: workspaces.KillAfter,
		signals:   newDropped(),
	}
	if err := workspaces.CheckEnv(options.Env); err != nil {
		return nil, fmt.Errorf("%w: %w", workspaces.ErrInvalidConfig, err)
	}
	if err := enforceable(options.Limits); err != nil {
		return nil, fmt.Errorf("%w: %w", workspaces.ErrInvalidConfig, err)
	}
	if p.lifetime < 0 {
		return nil, fmt.Errorf("%w: negative lifetime %s", workspaces.ErrInvalidConfig, p.lifetime)
	}
	if p.lifetime == 0 {
		p.lifetime = workspaces.DefaultLimits().Lifetime
	}
	if p.root == "" {
		p.root = filepath.Join(os.TempDir(), "carrel-workspaces-"+strconv.Itoa(os.Getuid()))
		p.ownRoot = true
	}
	root, err := filepath.Abs(p.root)
	if err != nil || strings.ContainsRune(root, 0) {
		return nil, fmt.Errorf("%w: root %.200q", workspaces.ErrInvalidConfig, p.root)
	}
	p.root = root
	return p, nil
}

// Name is "local".
func (p *Provider) Name() string { return Name }

// SharesHost is true: commands run as our own user.
func (p *Provider) SharesHost() bool { return true }

// enforceable says which limit was set that a directory cannot enforce.
func enforceable(limits workspaces.Limits) error {
	for _, limit := range []struct {
		name string
		set  bool
	}{
		{"cpu", limits.CPU != ""},
		{"memory", limits.Memory != ""},
		{"storage", limits.Storage != ""},
		{"pids", limits.PIDs != 0},
	} {
		if limit.set {
			return fmt.Errorf("%w: the local provider cannot limit %s", workspaces.ErrUnsupported, limit.name)
		}
	}
	return nil
}

// Create makes an empty workspace. Errors match workspaces.ErrUnsupported for an image or a limit
// other than Lifetime; the rest is what the file system says.
func (p *Provider) Create(ctx context.Context, options workspaces.CreateOptions) (workspaces.Created, error) {
	if err := ctx.Err(); err != nil {
		return workspaces.Created{}, err
	}
	if options.Image != "" {
		return workspaces.Created{}, fmt.Errorf("%w: the local provider has no images, %.200q was asked for", workspaces.ErrUnsupported, options.Image)
	}
	if err := enforceable(options.Limits); err != nil {
		return workspaces.Created{}, err
	}
	lifetime := p.lifetime
	if options.Limits.Lifetime > 0 {
		lifetime = options.Limits.Lifetime
	}
	root, err := p.makeRoot()
	if err != nil {
		return workspaces.Created{}, err
	}
	p.signals.catchInherited()

	now := time.Now().Round(0)
	folder, err := newFolder(root, label{
		ManagedBy:     managedBy,
		Component:     component,
		Workspace:     newID(),
		Deployment:    options.Deployment,
		Run:           options.RunID,
		Repository:    options.Repository,
		RepositoryKey: options.RepositoryKey,
		Ref:           options.Ref,
		Commit:        options.Commit,
		CreatedAt:     now,
		ExpiresAt:     now.Add(lifetime).Format(time.RFC3339Nano),
	})
	if err != nil {
		return workspaces.Created{}, err
	}
	if err := ctx.Err(); err != nil {
		return workspaces.Created{}, errors.Join(err, folder.remove())
	}
	return workspaces.Created{Workspace: newWorkspace(p, folder, options, now, now.Add(lifetime))}, nil
}

// makeRoot makes the root and returns its real path.
func (p *Provider) makeRoot() (string, error) {
	if err := os.MkdirAll(p.root, 0o700); err != nil {
		return "", fmt.Errorf("make the workspaces' root: %w", err)
	}
	if p.ownRoot {
		info, err := os.Lstat(p.root)
		if err != nil {
			return "", fmt.Errorf("look at the workspaces' root: %w", err)
		}
		owner := info.Sys().(*syscall.Stat_t).Uid
		if !info.IsDir() || int(owner) != os.Getuid() || info.Mode().Perm()&0o022 != 0 {
			return "", fmt.Errorf("%w: %q is not a directory that only we can write", fs.ErrPermission, p.root)
		}
	}
	root, err := filepath.EvalSymlinks(p.root)
	if err != nil {
		return "", fmt.Errorf("look at the workspaces' root: %w", err)
	}
	return root, nil
}

const (
	idPrefix = "ws-"
	idBytes  = 6
)

func newID() string { return idPrefix + randomHex(idBytes) }

// isID says whether a name is one that newID makes.
func isID(name string) bool {
	digits, ok := strings.CutPrefix(name, idPrefix)
	raw, err := hex.DecodeString(digits)
	return ok && err == nil && len(raw) == idBytes && digits == strings.ToLower(digits)
}

func randomHex(bytes int) string {
	raw := make([]byte, bytes)
	rand.Read(raw) // never fails
	return hex.EncodeToString(raw)
}
