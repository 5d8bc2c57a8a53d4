package tools

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/carrel-dev/carrel/workspaces"
)

// proves T2: the real directory is replaced, across chunk borders too.
func TestRootWriterT2(t *testing.T) {
	const root = "/tmp/ws/ab12"
	for in, want := range map[string]string{
		"":                                  "",
		"/tmp/ws/ab12":                      "/workspace",
		"/tmp/ws/ab12\n":                    "/workspace\n",
		"at /tmp/ws/ab12/x.go:1":            "at /workspace/x.go:1",
		"/tmp/ws/ab12-evil/x":               "/tmp/ws/ab12-evil/x",
		"/tmp/ws/ab123":                     "/tmp/ws/ab123",
		"/tmp/ws/ab1":                       "/tmp/ws/ab1",
		"/tmp/ws/ab12/tmp/ws/ab12":          "/workspace/workspace",
		"/tmp/ws//tmp/ws/ab12:":             "/tmp/ws//workspace:",
		"file:///tmp/ws/ab12/a /tmp/ws/ab":  "file:///workspace/a /tmp/ws/ab",
		"\xff/tmp/ws/ab12\xff/tmp/ws/ab12)": "\xff/tmp/ws/ab12\xff/workspace)",
		"a/tmp/ws/ab12.":                    "a/workspace.",
	} {
		for size := 1; size <= len(in)+1; size++ {
			var out bytes.Buffer
			w := rootWriter{to: &out, root: root, as: workspaces.Root}
			for rest := []byte(in); len(rest) > 0; {
				n := min(size, len(rest))
				_, err := w.Write(rest[:n])
				require.NoError(t, err)
				rest = rest[n:]
			}
			require.NoError(t, w.flush())
			require.Equal(t, want, out.String(), "%q in chunks of %d", in, size)
		}
		require.Equal(t, in, showRoot(in, ""))
	}
}

func FuzzRootWriter(f *testing.F) {
	f.Add("x/tmp/ws/tmp/ws", 3, "/tmp/ws")
	f.Add("aaab", 1, "aab")
	f.Fuzz(func(t *testing.T, in string, size int, root string) {
		if size < 1 || root == "" {
			return
		}
		whole := showRoot(in, root)
		var out strings.Builder
		w := rootWriter{to: &out, root: root, as: workspaces.Root}
		for rest := in; rest != ""; {
			n := min(size, len(rest))
			_, _ = w.Write([]byte(rest[:n]))
			rest = rest[n:]
			require.LessOrEqual(t, len(w.held), len(root))
		}
		_ = w.flush()
		require.Equal(t, whole, out.String())
	})
}

// proves T2: the real directory is understood in a path.
func TestPathOfRealDirectory(t *testing.T) {
	r := room{root: "/tmp/ws/ab12"}
	require.Equal(t, "/workspace/a", r.path("/tmp/ws/ab12/a"))
	require.Equal(t, "/workspace", r.path("/tmp/ws/ab12"))
	require.Equal(t, "/tmp/ws/ab12-evil/x", r.path("/tmp/ws/ab12-evil/x"))
	require.Equal(t, "a", r.path("a"))
	require.Equal(t, "/workspace/a", room{}.path("/workspace/a"))
}
