package workspaces

import (
	"context"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// A gitServer serves the repositories below a directory over https as https://example.com:port/<directory>, a
// name that only the fetcher's own lookup resolves.
type gitServer struct {
	*remote

	server *httptest.Server
	caFile string

	before   func(w http.ResponseWriter, r *http.Request) (answered bool) // nil: straight to git
	password atomic.Pointer[string]                                       // nil: public
	lookups  atomic.Int64

	mu       sync.Mutex
	requests []string
}

func newGitServer(t *testing.T) *gitServer {
	t.Helper()
	s := &gitServer{remote: newRemote(t)}
	execPath, err := exec.Command("git", "--exec-path").Output()
	require.NoError(t, err)
	backend := filepath.Join(strings.TrimSpace(string(execPath)), "git-http-backend")
	s.server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.requests = append(s.requests, r.Method+" "+r.URL.Path)
		s.mu.Unlock()
		if s.before != nil && s.before(w, r) {
			return
		}
		if want := s.password.Load(); want != nil {
			if _, password, _ := r.BasicAuth(); password != *want {
				w.Header().Set("WWW-Authenticate", `Basic realm="git"`)
				w.Header().Set("Content-Type", "text/plain")
				w.WriteHeader(http.StatusUnauthorized)
				// What an unwise server may do.
				fmt.Fprintf(w, "denied: %s, that is %s\n", password, r.Header.Get("Authorization"))
				return
			}
		}
		(&cgi.Handler{
			Path: backend, Logger: log.New(io.Discard, "", 0), Stderr: io.Discard,
			Env: []string{
				"GIT_PROJECT_ROOT=" + filepath.Dir(s.bare.root), "GIT_HTTP_EXPORT_ALL=1", "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null",
				"GIT_PROTOCOL=" + r.Header.Get("Git-Protocol"),
			},
		}).ServeHTTP(w, r)
	}))
	s.server.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.server.StartTLS()
	t.Cleanup(s.server.Close)
	s.caFile = filepath.Join(t.TempDir(), "ca.pem")
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.server.Certificate().Raw})
	require.NoError(t, os.WriteFile(s.caFile, authority, 0o600))
	s.url = s.urlOf("root")
	return s
}

// urlOf is the URL of a repository beside the bare one.
func (s *gitServer) urlOf(directory string) string {
	return "https://example.com:" + s.server.URL[strings.LastIndex(s.server.URL, ":")+1:] + "/" + directory
}

// requested returns the requests since it was called last.
func (s *gitServer) requested() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	requests := s.requests
	s.requests = nil
	return requests
}

// commit adds a commit to trunk.
func (s *gitServer) commit(t *testing.T, content string) string {
	t.Helper()
	s.work.write(t, "f", content)
	s.work.git(t, "commit", "-q", "-am", "more")
	s.work.git(t, "push", "-q", s.bare.root, "trunk")
	return s.work.git(t, "rev-parse", "HEAD")
}

// host is how a fetcher of the test reaches the server.
func (s *gitServer) host(t *testing.T) HostFetch {
	return HostFetch{CacheDir: filepath.Join(t.TempDir(), "cache"), CAFile: s.caFile, AllowAddress: netip.Addr.IsLoopback}
}

func (s *gitServer) fetcher(t *testing.T, options HostFetch) *hostFetcher {
	t.Helper()
	f, err := newHostFetcher(options, false, func(err error) { t.Errorf("behind a fetch: %v", err) })
	require.NoError(t, err)
	f.lookup = s.lookup
	return f
}

func (s *gitServer) lookup(context.Context, string, string) ([]netip.Addr, error) {
	s.lookups.Add(1)
	return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
}

// fetch fetches a ref and lets go of it.
func (s *gitServer) fetch(t *testing.T, f *hostFetcher, runID, ref string) (fetchedCommit, error) {
	t.Helper()
	c, err := f.fetch(t.Context(), runID, s.url, ref)
	if err != nil {
		require.Nil(t, c)
		return fetchedCommit{}, err
	}
	c.close()
	c.close()
	return *c, nil
}

// A shellProvider makes shellWorkspaces. They see the files of the host, though it does not say so unless it shares.
type shellProvider struct {
	t      *testing.T
	shares bool

	mu   sync.Mutex
	made []*shellWorkspace
	args []Command // all that ran
}

func (p *shellProvider) Name() string     { return "shell" }
func (p *shellProvider) SharesHost() bool { return p.shares }

func (p *shellProvider) Create(_ context.Context, options CreateOptions) (Created, error) {
	w := newShellWorkspace(p.t)
	w.info = Info{RunID: options.RunID, Repository: options.Repository, Ref: options.Ref}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.made = append(p.made, w)
	return Created{Workspace: providedWorkspace{w, p}}, nil
}

type providedWorkspace struct {
	*shellWorkspace
	provider *shellProvider
}

func (w providedWorkspace) ID() string                    { return "shell" }
func (w providedWorkspace) Dispose(context.Context) error { return nil }

func (w providedWorkspace) Exec(ctx context.Context, command Command) (Result, error) {
	w.provider.mu.Lock()
	w.provider.args = append(w.provider.args, command)
	w.provider.mu.Unlock()
	result, err := w.shellWorkspace.Exec(ctx, command)
	if _, failed := io.WriteString(command.Stderr, result.Stderr); failed != nil {
		return result, failed
	}
	return result, err
}

// hostManager returns a manager that fetches from the server.
func hostManager(t *testing.T, s *gitServer, p *shellProvider, options Options) *Manager {
	t.Helper()
	options.CollectInterval = -1
	options.OnError = func(err error) { t.Errorf("in the background: %v", err) }
	if options.AllowRepo == nil {
		options.AllowRepo = func(context.Context, string, string) error { return nil }
	}
	m, err := NewManager(p, options)
	require.NoError(t, err)
	if s != nil {
		m.fetcher.lookup = s.lookup
	}
	t.Cleanup(func() { require.NoError(t, m.Close(context.Background())) })
	return m
}

// checkoutOf acquires the workspace of a new run.
func checkoutOf(t *testing.T, m *Manager, runID, repository, ref string) (*shellWorkspace, error) {
	t.Helper()
	run := open(t, m, runID)
	got, err := run.Acquire(t.Context(), AcquireOptions{Repository: repository, Ref: ref})
	if err != nil {
		return nil, err
	}
	provided, ok := As[providedWorkspace](got.Workspace)
	require.True(t, ok)
	provided.info = got.Workspace.Info()
	return provided.shellWorkspace, nil
}

// proves C4, C6: a checkout from the host is what one inside the workspace is, whatever kind the ref is of, be the
// cache empty or not.
func TestHostFetch_C4_C6_Refs(t *testing.T) {
	s := newGitServer(t)
	options := s.host(t)
	m := hostManager(t, s, &shellProvider{t: t}, Options{HostFetch: &options})
	for _, state := range []string{"empty cache", "cached"} {
		for _, c := range []struct {
			name, ref, commit, branch string
		}{
			{"head", "", s.c3, "trunk"},
			{"HEAD", "HEAD", s.c3, "trunk"},
			{"branch", "trunk", s.c3, "trunk"},
			{"hex branch", "deadbeef", s.c1, "deadbeef"},
			{"branch with slashes", "feat/a/b", s.c2, "feat/a/b"},
			{"branch called tag", "tag", s.c2, "tag"},
			{"branch with a quote", "it's", s.c1, "it's"},
			{"annotated tag and branch", "v1", s.c1, ""},
			{"light tag and branch", "light", s.c1, ""},
			{"commit no ref names", s.c1, s.c1, ""},
			{"commit in capitals", strings.ToUpper(s.c2), s.c2, ""},
		} {
			t.Run(state+"/"+c.name, func(t *testing.T) {
				w, err := checkoutOf(t, m, state+c.name, s.url, c.ref)
				require.NoError(t, err)
				require.Equal(t, c.commit, w.info.Commit)
				require.Equal(t, "trunk", s.bare.git(t, "branch", "--show-current"))

				inside := newShellWorkspace(t)
				_, err = checkout(t.Context(), inside, "file://"+s.bare.root, c.ref)
				require.NoError(t, err)
				const state = `git rev-parse HEAD refs/carrel/base
git rev-list --count HEAD
git rev-parse --is-shallow-repository
git for-each-ref --format="%(refname) %(objectname) %(upstream)"
git status --short
git ls-files -s
git config remote.origin.fetch`
				require.Equal(t, inside.sh(t, state), w.sh(t, state))
				require.Equal(t, c.branch, w.git(t, "branch", "--show-current"))
				require.Equal(t, s.url, w.git(t, "remote", "get-url", "origin"))
				require.False(t, w.exists(".git/hooks"))
				base, found, err := readBase(t.Context(), w)
				require.NoError(t, err)
				require.True(t, found)
				require.Equal(t, c.commit, base)
				w.sh(t, `echo more >>f; git commit -qam more; git fsck --strict`)
			})
		}
	}
}
