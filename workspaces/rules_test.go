package workspaces

import (
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

func TestNormalizeRepository_R1(t *testing.T) {
	for input, want := range map[string]string{
		"owner/name":                           "https://github.com/owner/name",
		"owner/name/":                          "https://github.com/owner/name",
		"owner/name.git":                       "https://github.com/owner/name",
		"https://GitHub.com/owner/name.git/":   "https://github.com/owner/name",
		"HTTPS://github.com:443/owner/name":    "https://github.com/owner/name",
		"https://github.com./owner/name":       "https://github.com/owner/name",
		"https://h.example:8443/a/b%2Dc":       "https://h.example:8443/a/b-c",
		"https://h.example/Case/Stays":         "https://h.example/Case/Stays",
		"https://h.example/a%20b":              "https://h.example/a%20b",
		"https://[2001:DB8::1]/x":              "https://[2001:db8::1]/x",
		"https://127.0.0.1:1/x.git":            "https://127.0.0.1:1/x",
		"https://h.example/deep/path/name.git": "https://h.example/deep/path/name",
	} {
		got, err := NormalizeRepository(input, false)
		require.NoError(t, err, input)
		require.Equal(t, want, got, input)
	}
	file, err := NormalizeRepository("file:///srv/repo/.git", true)
	require.NoError(t, err)
	require.Equal(t, "file:///srv/repo/.git", file)
}

func TestNormalizeRepository_R1_C38_Refused(t *testing.T) {
	for _, input := range []string{
		"", "owner", "owner/..", "owner/.", "../name", "a/b/c", "-x/y", "--upload-pack=touch pwned",
		"ext::sh -c id", "git@h:x", "git@github.com:owner/name", "ssh://h/x", "http://h/x", "git://h/x",
		"file:///x", "file://host/x", "file:x",
		"https://", "https://h", "https://h/", "https://h/x?y", "https://h/x#y", "https://h/a//b", "https://h/../x", "https://h/%2e%2e/x",
		"https://h/a%2fb", "https://h/a%zz", "https://h/x\n", "https://h/a b", "https://h/\x00", "https://h/\xff", `https://h\x/y`,
		"https://127.1/x", "https://0x7f.0.0.1/x", "https://2130706433/x", "https://0177.0.0.1/x", "https://[::1%25eth0]/x", "https://[1.2.3.4]/x",
		"https://h:0/x", "https://h:99999/x", "https://h:a/x", "https://exa mple/x", "https://münchen/x", "https://h/x.git.git",
		"https://" + strings.Repeat("a", 3000) + "/x",
	} {
		_, err := NormalizeRepository(input, false)
		require.ErrorIs(t, err, ErrInvalidInput, "%q", input)
	}
}

// proves R1, C42: a credential in a URL is in no error.
func TestNormalizeRepository_R1_NeverEchoesCredentials(t *testing.T) {
	for _, input := range []string{
		"https://user:tok_SECRET@127.0.0.1:1/x.git", "https://tok_SECRET@github.com/a/b", "https://user:tok_SECRET%40h/x", "https://h/x?token=tok_SECRET",
		"https://h/x#tok_SECRET", "tok_SECRET@h:x", "ssh://tok_SECRET@h/x", "file://tok_SECRET@h/x", "https://tok_SECRET@h/\x00", "tok_SECRET",
	} {
		_, err := NormalizeRepository(input, true)
		require.ErrorIs(t, err, ErrInvalidInput, input)
		require.NotContains(t, err.Error(), "SECRET", input)
	}
}

func FuzzNormalizeRepository_R1(f *testing.F) {
	for _, seed := range []string{"owner/name", "https://H.example:443/a/b.git/", "file:///x/y", "https://u:p@h/x", "https://h/%2D", "https://[::1]/x", "https://h/.git"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, input string) {
		normal, err := NormalizeRepository(input, true)
		if err != nil {
			require.ErrorIs(t, err, ErrInvalidInput)
			return
		}
		again, err := NormalizeRepository(normal, true)
		require.NoError(t, err, "the normal form %q of %q is refused", normal, input)
		require.Equal(t, normal, again)
		require.True(t, strings.HasPrefix(normal, "https://") || strings.HasPrefix(normal, "file:///"))
		require.NotContains(t, normal, "@")
		require.NotContains(t, normal, "..")
		require.True(t, printable(normal))
	})
}

var (
	goodRefs = []string{
		"main", "v1.2.3", "feat/a/b", "deadbeef", "HEAD", "docs", "a-b", "a_b", "été", "x.y", "@x",
		strings.Repeat("a", 40), strings.Repeat("0", 64),
	}
	badRefs = []string{
		"", "-q", "--upload-pack=touch pwned;", "+main", "^main", "main:evil", "main..dev", "main...dev", "main~1", "main^{}", "@{-1}", "@", "HEAD~1",
		" main", "main ", "main\n", "a b", "a\tb", "a\x00b", "a\x7fb", "refs/../x", "refs/heads/main", "refs", "x.lock", "a.lock/b", "x.", ".x", "a/.x", "a//b", "/a", "a/",
		"a*", "a?", "a[b", `a\b`, "\xff", strings.Repeat("a", 256),
	}
)

func TestCheckRef_R2_C38(t *testing.T) {
	for _, ref := range goodRefs {
		require.NoError(t, CheckRef(ref), "%q", ref)
	}
	for _, ref := range badRefs {
		require.ErrorIs(t, CheckRef(ref), ErrInvalidInput, "%q", ref)
	}
}

// FuzzCheckRef_R2 holds what passes against git's own idea of a ref name.
func FuzzCheckRef_R2(f *testing.F) {
	for _, ref := range append(goodRefs, badRefs...) {
		f.Add(ref)
	}
	git, err := exec.LookPath("git")
	require.NoError(f, err)
	f.Fuzz(func(t *testing.T, ref string) {
		if err := CheckRef(ref); err != nil {
			require.ErrorIs(t, err, ErrInvalidInput)
			require.Less(t, len(err.Error()), 500)
			return
		}
		require.NoError(t, exec.Command(git, "check-ref-format", "refs/heads/"+ref).Run(), "git refuses %q", ref)
		require.NotContains(t, ref, ":")
		require.False(t, strings.HasPrefix(ref, "-"))
	})
}

func TestCleanPath_R3_C16(t *testing.T) {
	for input, want := range map[string]string{
		".": ".", "/workspace": ".", "/workspace/": ".", "b.txt": "b.txt", "./b.txt": "b.txt", "/workspace/sub/../b.txt": "b.txt", "a//b": "a/b", "a/./b/": "a/b",
		"..foo": "..foo", "-n": "-n", "...": "...", "it's \"x\"\n[y] :z": "it's \"x\"\n[y] :z", ":(glob)x": ":(glob)x", " ": " ", "workspace/x": "workspace/x", "\xff": "\xff",
		"/workspace//x": "x", "//workspace/x": "x",
	} {
		got, err := CleanPath(input)
		require.NoError(t, err, "%q", input)
		require.Equal(t, want, got, "%q", input)
	}
	for _, input := range []string{
		"", "..", "../x", "a/../../x", "sub/../../x", "../ab12-evil/x", "/", "/etc/passwd", "/workspace/..", "/workspace/../ab12-evil/x", "/workspace-evil/x", "/workspaces", "a\x00b",
		"/../workspace/x", strings.Repeat("a/", 3000),
	} {
		_, err := CleanPath(input)
		require.ErrorIs(t, err, ErrInvalidInput, "%q", input)
	}
}

func FuzzCleanPath_R3(f *testing.F) {
	for _, seed := range []string{"a/b", "/workspace/a", "../x", "a/../..", "/workspace-evil", "..foo", "a\x00", "//", "./."} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, input string) {
		clean, err := CleanPath(input)
		if err != nil {
			require.ErrorIs(t, err, ErrInvalidInput)
			return
		}
		require.Equal(t, path.Clean(clean), clean)
		require.True(t, filepath.IsLocal(clean), clean)
		again, err := CleanPath(clean)
		require.NoError(t, err)
		require.Equal(t, clean, again)
		below, err := CleanPath(Root + "/" + clean)
		require.NoError(t, err)
		require.Equal(t, clean, below)
	})
}

func TestCheckEnv_R4(t *testing.T) {
	require.NoError(t, CheckEnv(nil))
	require.NoError(t, CheckEnv(map[string]string{"A": "", "_b1": "x\ny", "Z": strings.Repeat("é", 60_000)}))
	for name, value := range map[string]string{"": "x", "1A": "x", "A=B": "x", "A B": "x", "é": "x", "NUL": "a\x00b", "INVALID": "\xff", "LONG": strings.Repeat("a", 131_072)} {
		err := CheckEnv(map[string]string{name: value})
		require.ErrorIs(t, err, ErrInvalidInput, name)
		if value != "x" {
			require.NotContains(t, err.Error(), value, "an error holds no value")
		}
	}
}

func FuzzCheckEnv_R4(f *testing.F) {
	f.Add("A", "b")
	f.Add("1", "\x00")
	f.Fuzz(func(t *testing.T, name, value string) {
		if CheckEnv(map[string]string{name: value}) != nil {
			return
		}
		require.NotContains(t, name, "=")
		require.NotContains(t, value, "\x00")
		require.True(t, utf8.ValidString(name+value))
	})
}

func TestCheckRunID_M5(t *testing.T) {
	for _, id := range []string{"a", "run 1", "été/7", strings.Repeat("a", 256)} {
		require.NoError(t, CheckRunID(id), "%q", id)
	}
	for _, id := range []string{"", "a\n", "a\x00", "\xff", strings.Repeat("a", 257)} {
		require.ErrorIs(t, CheckRunID(id), ErrInvalidInput, "%q", id)
	}
}
