package workspaces

import (
	"context"
	"encoding/pem"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A remote is a bare repository to check out from.
type remote struct {
	url        string
	c1, c2, c3 string
	bare, work *shellWorkspace
}

// newRemote makes commits c1, c2, c3 on the default branch trunk and refs that are easily taken for something else.
func newRemote(t *testing.T) *remote {
	t.Helper()
	r := &remote{work: newShellWorkspace(t), bare: newShellWorkspace(t)}
	r.bare.git(t, "init", "-q", "--bare", "-b", "trunk")
	r.url = "file://" + r.bare.root
	w := r.work
	w.git(t, "init", "-q", "-b", "trunk")
	w.git(t, "config", "user.name", "a")
	w.git(t, "config", "user.email", "a@b")
	commit := func(content string) string {
		w.write(t, "f", content, "docs/x", "x\n")
		w.git(t, "add", "-A")
		w.git(t, "commit", "-q", "-m", content)
		return w.git(t, "rev-parse", "HEAD")
	}
	r.c1 = commit("1\n")
	w.git(t, "tag", "-a", "-m", "annotated", "v1")
	w.git(t, "branch", "deadbeef")
	w.git(t, "branch", "it's")
	r.c2 = commit("2\n")
	for _, branch := range []string{"feat/a/b", "docs", "tag", "v1", "f", "light"} {
		w.git(t, "branch", branch)
	}
	w.git(t, "tag", "light", r.c1)
	w.git(t, "tag", "tree", r.c1+"^{tree}")
	r.c3 = commit("3\n")
	w.git(t, "push", "-q", r.bare.root, "--all")
	w.git(t, "push", "-q", r.bare.root, "--tags")
	return r
}

// proves C1, C36: every kind of ref is the right commit, shallow, in one Exec.
func TestCheckout_C1_C36_Refs(t *testing.T) {
	r := newRemote(t)
	for _, c := range []struct {
		name, ref, commit, branch string
	}{
		{"head", "", r.c3, "trunk"},
		{"HEAD", "HEAD", r.c3, "trunk"},
		{"branch", "trunk", r.c3, "trunk"},
		{"hex branch", "deadbeef", r.c1, "deadbeef"},
		{"branch with slashes", "feat/a/b", r.c2, "feat/a/b"},
		{"branch like a directory", "docs", r.c2, "docs"},
		{"branch like a file", "f", r.c2, "f"},
		{"branch called tag", "tag", r.c2, "tag"},
		{"branch with a quote", "it's", r.c1, "it's"},
		{"annotated tag and branch", "v1", r.c1, ""},
		{"light tag and branch", "light", r.c1, ""},
		{"commit no ref names", r.c1, r.c1, ""},
		{"commit in capitals", strings.ToUpper(r.c2), r.c2, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newShellWorkspace(t)
			commit, err := checkout(t.Context(), w, r.url, c.ref)
			require.NoError(t, err)
			require.Equal(t, c.commit, commit)
			require.EqualValues(t, 1, w.execs.Load())
			require.Equal(t, c.commit, w.git(t, "rev-parse", "HEAD"))
			require.Equal(t, c.commit, w.git(t, "rev-parse", BaseRef))
			require.Equal(t, "1", w.git(t, "rev-list", "--count", "HEAD"))
			require.Equal(t, ".git", w.git(t, "rev-parse", "--git-dir"))
			require.Equal(t, c.branch, w.git(t, "branch", "--show-current"))
			require.Equal(t, r.url, w.git(t, "remote", "get-url", "origin"))
			require.Empty(t, w.git(t, "status", "--short"))
			if c.branch != "" {
				require.Equal(t, "refs/remotes/origin/"+c.branch, w.git(t, "rev-parse", "--symbolic-full-name", "@{upstream}"))
			}
			require.Equal(t, "+refs/heads/*:refs/remotes/origin/*", w.git(t, "config", "remote.origin.fetch"))
			require.False(t, w.exists(".git/hooks"))
			base, found, err := readBase(t.Context(), w)
			require.NoError(t, err)
			require.True(t, found)
			require.Equal(t, c.commit, base)

			// A commit of the model works, and a fetch of more.
			w.sh(t, `echo more >>f; git commit -qam more; git fetch -q --depth=2 origin trunk; git gc -q --prune=now`)
			base, _, err = readBase(t.Context(), w)
			require.NoError(t, err)
			require.Equal(t, c.commit, base, "packed")
		})
	}
}

// proves R2, C36: what may be a short commit id is refused with what to do.
func TestCheckout_R2_ShortCommitID(t *testing.T) {
	r := newRemote(t)
	_, err := checkout(t.Context(), newShellWorkspace(t), r.url, r.c1[:7])
	require.ErrorIs(t, err, ErrInvalidInput)
	require.ErrorContains(t, err, "use the full commit id")
}

// proves C2: a step that fails is an error with git's stderr, bounded.
func TestCheckout_C2_Failures(t *testing.T) {
	r := newRemote(t)
	for _, c := range []struct{ name, url, ref, step, stderr string }{
		{"no such branch", r.url, "nosuch", "fetch", "nosuch"},
		{"no such commit", r.url, strings.Repeat("1", 40), "fetch", "not our ref"},
		{"no such repository", "file:///nonexistent/x", "main", "fetch", "/nonexistent/x"},
		{"no such repository, HEAD", "file:///nonexistent/x", "", "fetch", "/nonexistent/x"},
		{"short id, no such repository", "file:///nonexistent/x", "abcdef1", "fetch", "/nonexistent/x"},
		{"a tag of no commit", r.url, "tree", "fetch", "no commit"},
		{"a transport that runs a program", "ext::sh -c 'touch pwned'", "main", "fetch", "not allowed"},
		{"an ssh address", "git@localhost:x", "main", "fetch", "not allowed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newShellWorkspace(t)
			_, err := checkout(t.Context(), w, c.url, c.ref)
			var failure *CheckoutError
			require.ErrorAs(t, err, &failure)
			require.Equal(t, c.step, failure.Step)
			require.Equal(t, c.url, failure.Repository)
			require.Equal(t, c.ref, failure.Ref)
			require.NotZero(t, failure.ExitCode)
			require.Contains(t, failure.Stderr, c.stderr)
			require.LessOrEqual(t, len(failure.Stderr), stderrMaxBytes)
			require.False(t, w.exists("pwned"))
		})
	}
}

// proves C1, C39: no repository, an empty remote, and a remote whose HEAD names nothing.
func TestCheckout_C39_NoCommit(t *testing.T) {
	t.Run("no repository", func(t *testing.T) {
		w := newShellWorkspace(t)
		commit, err := checkout(t.Context(), w, "", "")
		require.NoError(t, err)
		require.Empty(t, commit)
		require.Equal(t, "main", w.git(t, "branch", "--show-current"))
		_, found, err := readBase(t.Context(), w)
		require.NoError(t, err)
		require.True(t, found)
		w.sh(t, `echo x >f; git add f; git commit -qm first`)
	})
	t.Run("empty remote", func(t *testing.T) {
		bare, w := newShellWorkspace(t), newShellWorkspace(t)
		bare.git(t, "init", "-q", "--bare", "-b", "weird")
		commit, err := checkout(t.Context(), w, "file://"+bare.root, "")
		require.NoError(t, err)
		require.Empty(t, commit)
		require.Equal(t, "weird", w.git(t, "branch", "--show-current"))
		commit, found, err := readBase(t.Context(), w)
		require.NoError(t, err)
		require.True(t, found)
		require.Empty(t, commit)
		w.sh(t, `echo x >f; git add f; git commit -qm first; git push -q origin weird`)
	})
	t.Run("dangling HEAD", func(t *testing.T) {
		r := newRemote(t)
		r.bare.git(t, "symbolic-ref", "HEAD", "refs/heads/nope")
		_, err := checkout(t.Context(), newShellWorkspace(t), r.url, "")
		var failure *CheckoutError
		require.ErrorAs(t, err, &failure)
		require.Contains(t, failure.Stderr, "name a branch")
	})
}

// proves C1, C41: neither the user's configuration nor the environment decides what is in a workspace.
func TestCheckout_C41_HostSettings(t *testing.T) {
	r := newRemote(t)
	r.work.write(t, ".gitattributes", "*.bin filter=lfs diff=lfs merge=lfs -text\n", "m.bin", strings.Repeat("p", 130), "f", "3\n")
	r.work.git(t, "add", "-A")
	r.work.git(t, "commit", "-qm", "lfs")
	r.work.git(t, "push", "-q", r.bare.root, "trunk")
	// A submodule that must not be fetched.
	r.work.sh(t, `git update-index --add --cacheinfo 160000,`+r.c1+`,sub
		printf '[submodule "sub"]\n\tpath = sub\n\turl = ../nonexistent\n' >.gitmodules
		git add .gitmodules; git commit -qm sub; git push -q "$1" trunk`, r.bare.root)
	other := filepath.Join(t.TempDir(), "other")
	for _, ref := range []string{"", "trunk"} {
		t.Run("ref "+ref, func(t *testing.T) {
			w := newShellWorkspace(t)
			home := filepath.Join(filepath.Dir(w.root), "home")
			run := "#!/bin/sh\ntouch " + filepath.Join(w.root, "pwned") + "\n"
			require.NoError(t, os.MkdirAll(filepath.Join(home, "template/hooks"), 0o777))
			for _, hook := range []string{"post-checkout", "post-index-change", "reference-transaction"} {
				require.NoError(t, os.WriteFile(filepath.Join(home, "template/hooks", hook), []byte(run), 0o777))
			}
			require.NoError(t, os.WriteFile(filepath.Join(home, ".gitconfig"), []byte(`
[filter "lfs"]
	smudge = git-lfs-absent smudge %f
	process = git-lfs-absent process
	required = true
[core]
	autocrlf = true
	hooksPath = `+home+`/template/hooks
	fsmonitor = touch pwned
[init]
	templateDir = `+home+`/template
	defaultObjectFormat = sha256
[clone]
	defaultRemoteName = elsewhere
[submodule]
	recurse = true
[url "file:///nonexistent/"]
	insteadOf = file:///
[user]
	email = me@example.com
`), 0o666))
			clean := w.env
			w.env = append(w.env, "GIT_DIR="+other, "GIT_INDEX_FILE="+other, "GIT_WORK_TREE="+other, "GIT_TEMPLATE_DIR="+home+"/template",
				"GIT_SSH_COMMAND=touch pwned", "GIT_DEFAULT_HASH=sha256", "GIT_OBJECT_DIRECTORY="+other)
			_, err := checkout(t.Context(), w, r.url, ref)
			require.NoError(t, err)
			require.False(t, w.exists("pwned"))
			require.NoDirExists(t, other)
			for name, size := range map[string]int64{"m.bin": 130, "f": 2} {
				info, err := os.Stat(filepath.Join(w.root, name))
				require.NoError(t, err)
				require.Equal(t, size, info.Size(), name)
			}
			w.env = clean
			require.Equal(t, ".git", w.git(t, "rev-parse", "--git-dir"))
			require.Equal(t, "me@example.com", w.git(t, "config", "user.email"), "the user's identity stays")
			config, err := os.ReadFile(filepath.Join(w.root, ".git/config"))
			require.NoError(t, err)
			require.NotContains(t, string(config), "carrel@localhost")
		})
	}
}

// proves C2, C42: a server that wants a password ends the checkout, and nobody is asked.
func TestCheckout_C42_Unauthorized(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("WWW-Authenticate", `Basic realm="x"`)
		w.WriteHeader(http.StatusUnauthorized)
	}))
	defer server.Close()
	for _, ref := range []string{"", "main", "abcdef1"} {
		w := newShellWorkspace(t)
		home := filepath.Join(filepath.Dir(w.root), "home")
		authority := filepath.Join(home, "ca.pem")
		require.NoError(t, os.WriteFile(authority, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o666))
		ask := filepath.Join(home, "ask")
		require.NoError(t, os.WriteFile(ask, []byte("#!/bin/sh\ntouch "+home+"/asked\necho secret\n"), 0o777))
		require.NoError(t, os.WriteFile(filepath.Join(home, ".gitconfig"), []byte("[credential]\n\thelper = "+ask+"\n[core]\n\taskPass = "+ask+"\n"), 0o666))
		require.NoError(t, os.WriteFile(filepath.Join(home, ".netrc"), []byte("default login x password secret\n"), 0o600))
		w.env = append(w.env, "GIT_SSL_CAINFO="+authority, "GIT_ASKPASS="+ask, "SSH_ASKPASS="+ask, "DISPLAY=:0", "GIT_TERMINAL_PROMPT=1")
		_, err := checkout(t.Context(), w, server.URL+"/a/b", ref)
		var failure *CheckoutError
		require.ErrorAs(t, err, &failure)
		require.Contains(t, failure.Stderr, "could not read Username")
		require.NoFileExists(t, filepath.Join(home, "asked"))
	}
}

// proves C2, C42: a silent server ends with the caller's cancel, and the error is the context's.
func TestCheckout_C42_SilentServer(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	accepted := make(chan net.Conn, 8)
	go func() {
		defer close(accepted)
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			accepted <- conn
		}
	}()
	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error, 1)
	w := newShellWorkspace(t)
	go func() {
		_, err := checkout(ctx, w, "https://"+listener.Addr().String()+"/a/b", "main")
		failed <- err
	}()
	conn := <-accepted
	cancel()
	require.Equal(t, context.Canceled, <-failed)
	conn.Close()
	listener.Close()
	for conn := range accepted {
		conn.Close()
	}
}

// proves C1, M10: a checkout that did not end is done again, one that ended is never undone.
func TestCheckout_Unfinished(t *testing.T) {
	r := newRemote(t)
	w := newShellWorkspace(t)
	w.sh(t, "mkdir lost+found")
	_, found, err := readBase(t.Context(), w)
	require.NoError(t, err)
	require.False(t, found, "an empty root")

	require.NoError(t, initRepository(t.Context(), w))
	w.write(t, "f", "half of it")
	_, found, err = readBase(t.Context(), w)
	require.NoError(t, err)
	require.False(t, found, "no checkout yet")
	commit, err := checkout(t.Context(), w, r.url, "")
	require.NoError(t, err)
	require.Equal(t, r.c3, commit)
	require.Equal(t, "3", w.sh(t, "cat f"))

	w.write(t, "f", "work")
	_, err = checkout(t.Context(), w, r.url, "")
	require.Error(t, err)
	require.Equal(t, "work", w.sh(t, "cat f"))

	w.sh(t, "rm -rf .git")
	commit, found, err = readBase(t.Context(), w)
	require.NoError(t, err)
	require.True(t, found, "the model removed .git")
	require.Empty(t, commit)
}

// proves C4: a commit whose objects were written into the repository is checked out without a remote.
func TestCheckout_C4_Fetched(t *testing.T) {
	r := newRemote(t)
	inject := func(t *testing.T, w *shellWorkspace, commit string) {
		require.NoError(t, initRepository(t.Context(), w))
		w.sh(t, `echo "$2" >.git/shallow; git -C "$1" pack-objects -q --revs --stdout --shallow <<EOF | git index-pack --stdin --strict >/dev/null
--shallow $2
$2
EOF
git update-ref refs/carrel/base "$2"`, r.bare.root, commit)
	}
	t.Run("branch", func(t *testing.T) {
		w := newShellWorkspace(t)
		inject(t, w, r.c2)
		require.NoError(t, checkoutFetched(t.Context(), w, "https://example.com/a/b", "docs", r.c2, "docs"))
		require.Equal(t, "docs", w.git(t, "branch", "--show-current"))
		require.Equal(t, r.c2, w.git(t, "rev-parse", "HEAD"))
		require.Equal(t, "1", w.git(t, "rev-list", "--count", "HEAD"))
		require.Equal(t, "https://example.com/a/b", w.git(t, "remote", "get-url", "origin"))
		require.Empty(t, w.git(t, "status", "--short"))
		base, found, err := readBase(t.Context(), w)
		require.NoError(t, err)
		require.True(t, found)
		require.Equal(t, r.c2, base)
		w.sh(t, `echo more >>f; git commit -qam more`)
	})
	t.Run("detached", func(t *testing.T) {
		w := newShellWorkspace(t)
		inject(t, w, r.c1)
		require.NoError(t, checkoutFetched(t.Context(), w, r.url, "v1", r.c1, ""))
		require.Empty(t, w.git(t, "branch", "--show-current"))
		require.Equal(t, "1", w.sh(t, "cat f"))
	})
	t.Run("empty remote", func(t *testing.T) {
		w := newShellWorkspace(t)
		require.NoError(t, initRepository(t.Context(), w))
		require.NoError(t, checkoutFetched(t.Context(), w, r.url, "", "", "weird"))
		require.Equal(t, "weird", w.git(t, "branch", "--show-current"))
		commit, found, err := readBase(t.Context(), w)
		require.NoError(t, err)
		require.True(t, found)
		require.Empty(t, commit)
	})
}
