package docker

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"io"
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
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/carrel-dev/carrel/workspaces"
)

// privateServer serves one repository, with a file f, over https to whoever has the password. It returns the repository's URL
// and a file with the server's authority.
func privateServer(t *testing.T, password string) (repository, caFile string) {
	t.Helper()
	dir := t.TempDir()
	git := func(args ...string) string {
		command := exec.Command("git", args...)
		command.Env = append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null")
		said, err := command.CombinedOutput()
		require.NoError(t, err, "%s", said)
		return strings.TrimSpace(string(said))
	}
	work := filepath.Join(dir, "work")
	git("init", "-q", "-b", "main", work)
	require.NoError(t, os.WriteFile(filepath.Join(work, "f"), []byte("private\n"), 0o600))
	git("-C", work, "add", "f")
	git("-C", work, "-c", "user.name=t", "-c", "user.email=t@localhost", "commit", "-q", "-m", "first")
	git("clone", "-q", "--bare", work, filepath.Join(dir, "served", "r.git"))

	backend := &cgi.Handler{
		Path: filepath.Join(git("--exec-path"), "git-http-backend"), Logger: log.New(io.Discard, "", 0), Stderr: io.Discard,
		Env: []string{"GIT_PROJECT_ROOT=" + filepath.Join(dir, "served"), "GIT_HTTP_EXPORT_ALL=1", "GIT_CONFIG_NOSYSTEM=1"},
	}
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, given, _ := r.BasicAuth(); given != password {
			w.Header().Set("WWW-Authenticate", `Basic realm="git"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		backend.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	caFile = filepath.Join(dir, "ca.pem")
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	require.NoError(t, os.WriteFile(caFile, authority, 0o600))
	return server.URL + "/r.git", caFile
}

// A private repository is fetched on the host into a container without network, and what opened it is nowhere in there.
func TestPrivateRepository_C5(t *testing.T) {
	const secret = "s3cr3t-of-the-run/+="
	repository, caFile := privateServer(t, secret)
	c := engine(t)
	password := secret
	s := newStand(t, c, Options{Profile: Toolchain}, func(o *workspaces.Options) { // root in it, who can read all
		o.AllowRepo = func(context.Context, string, string) error { return nil }
		o.HostFetch = &workspaces.HostFetch{
			CacheDir: filepath.Join(t.TempDir(), "cache"), CAFile: caFile, AllowAddress: netip.Addr.IsLoopback,
			Credential: func(context.Context, string, string) (workspaces.Credential, error) {
				return workspaces.Credential{Username: "x-token", Password: password}, nil
			},
		}
	})
	w := s.workspace(t, workspaces.AcquireOptions{Repository: repository})
	require.Equal(t, "private\n", shell(t, w, "cat f"))

	told, err := c.ContainerInspect(t.Context(), containerOf(w))
	require.NoError(t, err)
	inspected, err := json.Marshal(told)
	require.NoError(t, err)
	// Objects are compressed: they are searched apart. The search does not find itself: it gets what it looks for on stdin.
	const search = `IFS= read -r secret
		{ git cat-file --batch-all-objects --batch; git log --all; env; } | grep -aqF -e "$secret" && echo "in git or the environment"
		for f in /proc/[0-9]*/environ /proc/[0-9]*/cmdline; do
			tr '\0' '\n' <"$f" 2>/dev/null | grep -qF -e "$secret" && echo "$f"
		done
		find / -xdev -type f -exec grep -alF -e "$secret" {} +
		for dir in /workspace /home/sandbox /cache /tmp; do find "$dir" -type f -exec grep -alF -e "$secret" {} +; done
		:`
	found := func(text string) string {
		r, err := w.Exec(t.Context(), workspaces.Command{Args: []string{"bash", "-c", search}, Stdin: strings.NewReader(text + "\n")})
		require.NoError(t, err)
		require.Zero(t, r.ExitCode, "%+v", r)
		return r.Stdout
	}
	require.Contains(t, found(w.Info().Repository), "/workspace/.git/config\n", "the search finds what is there")
	for _, shape := range []string{secret, base64.StdEncoding.EncodeToString([]byte("x-token:" + secret)), url.QueryEscape(secret)} {
		require.Empty(t, found(shape))
		require.NotContains(t, string(inspected), shape)
	}

	password = "another"
	_, err = s.open(t, "another run").Acquire(t.Context(), workspaces.AcquireOptions{Repository: repository})
	require.ErrorContains(t, err, "Authentication failed")
	require.NotContains(t, err.Error(), password)
}
