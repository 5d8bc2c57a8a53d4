package tools

import (
	"bytes"
	"io"
	"slices"
	"strings"

	"github.com/carrel-dev/carrel/workspaces"
)

// A rootWriter replaces a path, the real directory of a workspace, by another name, /workspace, in what is
// written through it, across chunks. It holds back what may be the beginning of the path until
// more comes; flush writes the rest. It is for one goroutine at a time.
type rootWriter struct {
	to   io.Writer
	root string // empty: nothing is replaced
	as   string
	held []byte
}

func (w *rootWriter) Write(p []byte) (int, error) {
	if w.root == "" {
		return w.to.Write(p)
	}
	rest := slices.Concat(w.held, p)
	out := make([]byte, 0, len(rest))
	for {
		i := bytes.Index(rest, []byte(w.root))
		if i < 0 {
			i = len(rest) - partial(rest, w.root)
			out, rest = append(out, rest[:i]...), rest[i:]
			break
		}
		out, rest = append(out, rest[:i]...), rest[i:]
		if len(rest) == len(w.root) {
			break // the next byte decides
		}
		if nameByte(rest[len(w.root)]) {
			out = append(out, w.root...) // a neighbour whose name begins alike
		} else {
			out = append(out, w.as...)
		}
		rest = rest[len(w.root):]
	}
	w.held = append([]byte(nil), rest...)
	if len(out) > 0 {
		if _, err := w.to.Write(out); err != nil {
			return 0, err
		}
	}
	return len(p), nil
}

func (w *rootWriter) flush() error {
	held := w.held
	w.held = nil
	if w.root != "" && string(held) == w.root {
		held = []byte(w.as)
	}
	_, err := w.to.Write(held)
	return err
}

// partial is the length of the longest end of b that root begins with.
func partial(b []byte, root string) int {
	for n := min(len(b), len(root)); n > 0; n-- {
		if string(b[len(b)-n:]) == root[:n] {
			return n
		}
	}
	return 0
}

// nameByte says that a file name goes on with c.
func nameByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-' || c >= 0x80
}

// showRoot replaces the real directory in a whole text.
func showRoot(text, root string) string {
	var b strings.Builder
	w := rootWriter{to: &b, root: root, as: workspaces.Root}
	_, _ = w.Write([]byte(text)) // a strings.Builder does not fail
	_ = w.flush()
	return b.String()
}
