package tools

import (
	"bytes"
	"strings"
	"sync"

	"github.com/carrel-dev/carrel/workspaces"
)

// headerMax bounds the line that a launch begins with: a path and the name of a shell.
const headerMax = 4096 + 16

// An output keeps what the command writes, as the model sees it. It is what the command's
// output is written to.
type output struct {
	workspaces.Output

	mu     sync.Mutex
	header []byte     // what may be the first line, until begun
	begun  bool       // the first line is over
	shell  string     // what it named; empty before, and where it named nothing
	script rootWriter // hides the script's path
	root   rootWriter // hides the real directory
	closed bool
	grown  chan struct{} // holds a token when Head may have grown
}

func newOutput(root string) *output {
	o := &output{grown: make(chan struct{}, 1)}
	o.root = rootWriter{to: &o.Output, root: root, as: workspaces.Root}
	o.script = rootWriter{to: &o.root}
	return o
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	n := len(p)
	if o.closed {
		return n, nil
	}
	if !o.begun {
		if p = o.begin(p); p == nil {
			return n, nil
		}
	}
	// Head ends within that many bytes, so more of them need nobody's attention.
	early := o.Bytes() <= workspaces.OutputHeadBytes
	_, err := o.script.Write(p)
	if early {
		select {
		case o.grown <- struct{}{}:
		default:
		}
	}
	return n, err
}

// begin takes the first line off and returns what follows, or nil while the line goes on.
func (o *output) begin(p []byte) []byte {
	o.header = append(o.header, p...)
	end := bytes.IndexByte(o.header, '\n')
	if end < 0 && len(o.header) <= headerMax {
		return nil
	}
	o.begun = true
	rest := o.header
	o.header = nil
	if end >= 0 {
		if shell, script, ok := launched(string(rest[:end])); ok {
			o.shell, o.script.root, o.script.as = shell, script, shell
			rest = rest[end+1:]
		}
	}
	return rest
}

// close ends the output: what comes late is dropped.
func (o *output) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return
	}
	o.closed = true
	// An Output does not fail.
	_, _ = o.script.Write(o.header)
	_ = o.script.flush()
	_ = o.root.flush()
}

// below is text on a line of its own below the output.
func (o *output) below(text string) string {
	if s := o.String(); s != "" && !strings.HasSuffix(s, "\n") {
		return "\n" + text
	}
	return text
}
