package workspaces

import (
	"context"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

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

// proves C5: the credential is in no command, file, error or report of a workspace, whether the fetch succeeds or
// not, even where the server repeats it.
func TestHostFetch_C5_CredentialStaysOut(t *testing.T) {
	const secret = "s3cr3t-of-the-run/+="
	s := newGitServer(t)
	password := secret
	s.password.Store(&password)
	options := s.host(t)
	options.Credential = func(context.Context, string, string) (Credential, error) {
		return Credential{Username: "x-token", Password: secret}, nil
	}
	p, seen := &shellProvider{t: t}, &recordingObserver{}
	m := hostManager(t, s, p, Options{HostFetch: &options, Observer: seen})
	w, err := checkoutOf(t, m, "right", s.url, "trunk")
	require.NoError(t, err)
	require.Equal(t, s.c3, w.info.Commit)

	changed := "another password"
	s.password.Store(&changed)
	_, refused := checkoutOf(t, m, "wrong", s.url, "trunk")
	require.ErrorContains(t, refused, "Authentication failed")

	told := fmt.Sprintf("%+v\n", refused)
	for _, command := range p.args {
		told += fmt.Sprintf("%q %q\n", command.Args, command.Env)
	}
	for _, outcome := range seen.outcomes {
		told += fmt.Sprintf("%+v\n", outcome)
	}
	require.NoError(t, filepath.WalkDir(w.root, func(path string, file fs.DirEntry, err error) error {
		if err == nil && file.Type().IsRegular() {
			content, err := os.ReadFile(path)
			told += string(content)
			return err
		}
		return err
	}))
	told += w.sh(t, "git config --list; env; git cat-file --batch-all-objects --batch")
	require.Contains(t, told, s.url, "what is searched is what was told")
	for _, shape := range []string{secret, base64.StdEncoding.EncodeToString([]byte("x-token:" + secret)), url.QueryEscape(secret)} {
		require.NotContains(t, told, shape)
	}
}

// proves C5: on a provider whose commands run as our own user, a credential is refused unless it is asked for.
func TestHostFetch_C5_SharedHost(t *testing.T) {
	options := HostFetch{CacheDir: t.TempDir(), Credential: func(context.Context, string, string) (Credential, error) { return Credential{}, nil }}
	allow := func(context.Context, string, string) error { return nil }
	_, err := NewManager(&shellProvider{t: t, shares: true}, Options{HostFetch: &options, AllowRepo: allow})
	require.ErrorContains(t, err, "CredentialOnSharedHost")
	options.CredentialOnSharedHost = true
	_, err = NewManager(&shellProvider{t: t, shares: true}, Options{HostFetch: &options, AllowRepo: allow})
	require.NoError(t, err)
}

// proves C6: a name asks the remote each time and gets what is new; a full commit id of a public repository asks it once.
func TestHostFetch_C6_Names(t *testing.T) {
	s := newGitServer(t)
	f := s.fetcher(t, s.host(t))
	for _, ref := range []string{"trunk", "", "v1"} {
		_, err := s.fetch(t, f, "a", ref)
		require.NoError(t, err)
		s.requested()
		_, err = s.fetch(t, f, "b", ref)
		require.NoError(t, err)
		require.NotEmpty(t, s.requested(), "%q was answered without the remote", ref)
	}
	newer := s.commit(t, "newer\n")
	got, err := s.fetch(t, f, "a", "trunk")
	require.NoError(t, err)
	require.Equal(t, newer, got.Commit)

	_, err = s.fetch(t, f, "a", s.c2)
	require.NoError(t, err)
	s.requested()
	got, err = s.fetch(t, f, "b", strings.ToUpper(s.c2))
	require.NoError(t, err)
	require.Equal(t, s.c2, got.Commit)
	require.Empty(t, s.requested(), "a commit that is there needs no remote")
}

// proves C6: what one scope has fetched with its credential, another does not get from the cache, nor the same one once
// its credential opens nothing more.
func TestHostFetch_C6_Scopes(t *testing.T) {
	s := newGitServer(t)
	password := "of a"
	s.password.Store(&password)
	given := map[string]Credential{
		"a":         {Username: "u", Password: "of a", Scope: "a"},
		"same":      {Username: "u", Password: "of a", Scope: "a"},
		"b":         {Username: "u", Password: "of b", Scope: "b"},
		"unscoped":  {Username: "u", Password: "of b"},
		"anonymous": {},
	}
	options := s.host(t)
	options.Credential = func(_ context.Context, runID, _ string) (Credential, error) { return given[runID], nil }
	f := s.fetcher(t, options)
	for _, ref := range []string{s.c2, "trunk"} {
		for _, allowed := range []string{"a", "same"} {
			_, err := s.fetch(t, f, allowed, ref)
			require.NoError(t, err, allowed)
		}
		for _, refused := range []string{"b", "unscoped", "anonymous"} {
			_, err := s.fetch(t, f, refused, ref)
			require.Error(t, err, "run %s and %s", refused, ref)
		}
	}
	revoked := "new"
	s.password.Store(&revoked)
	for _, ref := range []string{s.c2, "trunk"} {
		_, err := s.fetch(t, f, "a", ref)
		require.Error(t, err, "%s is shown by a credential that opens nothing", ref)
	}
}

// proves C7: without somebody who allows repositories nothing is fetched on the host, and what is not allowed is not
// asked for.
func TestHostFetch_C7_AllowRepo(t *testing.T) {
	s := newGitServer(t)
	options := s.host(t)
	_, err := NewManager(&shellProvider{t: t}, Options{HostFetch: &options})
	require.ErrorContains(t, err, "AllowRepo")
	m := hostManager(t, s, &shellProvider{t: t}, Options{HostFetch: &options, AllowRepo: func(context.Context, string, string) error { return errors.New("not this one") }})
	_, err = checkoutOf(t, m, "r", s.url, "")
	require.ErrorContains(t, err, "not this one")
	require.Zero(t, s.lookups.Load())
	require.Empty(t, s.requested())
}

// proves C7: loopback, link-local and private addresses are refused before anything is sent, whether the URL names them or
// a name leads to them, and the error does not say which it was.
func TestHostFetch_C7_Addresses(t *testing.T) {
	s := newGitServer(t)
	options := s.host(t)
	options.AllowAddress = nil
	f := s.fetcher(t, options)
	_, err := s.fetch(t, f, "r", "trunk")
	require.ErrorIs(t, err, ErrInvalidInput)
	require.NotContains(t, err.Error(), "127.0.0.1")
	port := s.server.URL[strings.LastIndex(s.server.URL, ":")+1:]
	for _, host := range []string{"127.0.0.1", "[::1]", "[::ffff:127.0.0.1]", "10.1.2.3", "169.254.169.254", "192.168.0.1", "172.16.0.1", "100.64.0.1", "[fe80::1]", "[fd00::1]", "[64:ff9b::7f00:1]", "0.0.0.0"} {
		_, err := f.fetch(t.Context(), "r", "https://"+host+":"+port+"/root", "trunk")
		require.ErrorIs(t, err, ErrInvalidInput, host)
	}
	require.Empty(t, s.requested())
	for address, public := range map[string]bool{"8.8.8.8": true, "2606:4700::1111": true, "64:ff9b::808:808": true, "::ffff:8.8.8.8": true, "2002:7f00:1::1": false, "2001:0:1::1": false} {
		require.Equal(t, public, isPublic(netip.MustParseAddr(address)), address)
	}
}

// proves C7: the name is resolved once, by us: what it leads to later does not count, and of several addresses only
// those that may be contacted are.
func TestHostFetch_C7_Pinned(t *testing.T) {
	s := newGitServer(t)
	f := s.fetcher(t, s.host(t))
	_, err := s.fetch(t, f, "r", "")
	require.NoError(t, err, "a name that no resolver knows")
	require.EqualValues(t, 1, s.lookups.Load(), "two connections, one lookup")

	f.lookup = func(context.Context, string, string) ([]netip.Addr, error) {
		return []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("::1")}, nil
	}
	pinned, err := f.pin(t.Context(), "https://example.com/x")
	require.NoError(t, err)
	require.Equal(t, "example.com:443:127.0.0.1,[::1]", pinned)
}

// proves C7: a redirect is not followed, to wherever it leads.
func TestHostFetch_C7_Redirect(t *testing.T) {
	s := newGitServer(t)
	s.before = func(w http.ResponseWriter, r *http.Request) bool {
		if strings.HasPrefix(r.URL.Path, "/moved/") {
			http.Redirect(w, r, strings.Replace(r.URL.String(), "moved", "root", 1), http.StatusMovedPermanently)
			return true
		}
		return false
	}
	f := s.fetcher(t, s.host(t))
	_, err := f.fetch(t.Context(), "r", s.urlOf("moved"), "trunk")
	var failed *CheckoutError
	require.ErrorAs(t, err, &failed)
	for _, request := range s.requested() {
		require.NotContains(t, request, "/root", "the redirect was followed")
	}
}

// proves C4: a fetch of more than the cache may hold is ended and leaves nothing of it.
func TestHostFetch_C4_TooLarge(t *testing.T) {
	s := newGitServer(t)
	s.work.sh(t, "head -c 20000000 /dev/urandom >big; git add big; git commit -qm big; git push -q "+s.bare.root+" trunk")
	s.before = func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodPost {
			time.Sleep(10 * time.Millisecond)
		}
		return false
	}
	options := s.host(t)
	options.MaxBytes = 1 << 20
	f := s.fetcher(t, options)
	_, err := s.fetch(t, f, "r", "trunk")
	if err != nil { // git may be faster than whoever watches it
		require.ErrorIs(t, err, ErrTooLarge)
	}
	require.Less(t, sizeOf(options.CacheDir), int64(1<<20))
}
