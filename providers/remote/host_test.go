//go:build linux && processnamespaces

// Not part of make test yet: it was not run often enough to be known as free of flakes.
//
//	go test -tags processnamespaces ./providers/remote

package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/carrel-dev/carrel/contracttest"
	"github.com/carrel-dev/carrel/workspaces"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A host is a fake sandbox: processes of this machine in a namespace of their own, and a directory in the place of
// /workspace.
type host struct {
	dir    string
	shell  string
	env    []string
	shred  bool      // streams come and go in small pieces, some late
	keeper *exec.Cmd // process 1 in there

	mu      sync.Mutex
	execs   map[*exec.Cmd]struct{} // which enter it from outside
	removed bool
}

// start starts what all processes of the sandbox end with.
func (h *host) start() error {
	h.keeper = exec.Command("sh", "-c", "mount -t proc proc /proc && echo && exec env --ignore-signal=CHLD sleep infinity")
	h.keeper.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID, Unshareflags: syscall.CLONE_NEWNS, Setsid: true}
	up, err := h.keeper.StdoutPipe()
	if err != nil {
		return err
	}
	if err := h.keeper.Start(); err != nil {
		return err
	}
	_, err = io.ReadFull(up, make([]byte, 1))
	return err
}

func (h *host) Exec(ctx context.Context, argv []string, streams Streams) (int, error) {
	if err := h.Alive(ctx); err != nil {
		return 0, err
	}
	here := make([]string, len(argv))
	for i, arg := range argv {
		arg = strings.ReplaceAll(arg, "/tmp/.carrel-claims", h.dir+".tmp/claims")
		if arg == workspaces.Root {
			arg = h.dir
		}
		here[i] = arg
	}
	if here[0] == "sh" {
		here[0] = h.shell
	}
	cmd := exec.Command("nsenter", append([]string{"-t", strconv.Itoa(h.keeper.Process.Pid), "-m", "-p", "--"}, here...)...)
	cmd.Env = h.env
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return 0, err
	}
	// Pipes of our own: a job in the background keeps them open, and Wait would wait for it.
	outRead, outWrite, err := os.Pipe()
	if err != nil {
		return 0, err
	}
	errRead, errWrite, err := os.Pipe()
	if err != nil {
		return 0, err
	}
	cmd.Stdout, cmd.Stderr = outWrite, errWrite
	err = cmd.Start()
	outWrite.Close()
	errWrite.Close()
	if err != nil {
		outRead.Close()
		errRead.Close()
		return 0, err
	}
	var copies sync.WaitGroup
	h.enter(cmd)
	copies.Go(func() { h.copy(streams.Stdout, outRead) })
	copies.Go(func() { h.copy(streams.Stderr, errRead) })
	fed := make(chan struct{})
	go func() {
		defer close(fed)
		if streams.Stdin != nil {
			h.copy(stdin, streams.Stdin)
		}
		stdin.Close()
	}()
	hangUp := context.AfterFunc(ctx, func() {
		stdin.Close()
		outRead.Close()
		errRead.Close()
	})
	exited := make(chan error, 1)
	go func() {
		err := cmd.Wait()
		h.leave(cmd)
		exited <- err
	}()
	copies.Wait()
	hangUp()
	outRead.Close()
	errRead.Close()
	if closer, ok := streams.Stdin.(io.Closer); ok {
		closer.Close()
		<-fed
	}
	stdin.Close()
	if ctx.Err() != nil {
		return 0, ctx.Err()
	}
	if err := <-exited; err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
				return 128 + int(status.Signal()), nil
			}
			return exit.ExitCode(), nil
		}
		return 0, fmt.Errorf("%w: %w", workspaces.ErrUnavailable, err)
	}
	return 0, nil
}

func (h *host) copy(to io.Writer, from io.Reader) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		data := buffer[:n]
		for len(data) > 0 {
			piece := len(data)
			if h.shred {
				piece = min(piece, 1+rand.IntN(40))
				if rand.IntN(200) == 0 {
					time.Sleep(time.Millisecond)
				}
				if piece > 20 {
					piece = len(data) // else a megabyte takes for ever
				}
			}
			if _, err := to.Write(data[:piece]); err != nil {
				return
			}
			data = data[piece:]
		}
		if err != nil {
			return
		}
	}
}

func (h *host) Alive(context.Context) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.removed {
		return fmt.Errorf("%w: it was removed", workspaces.ErrGone)
	}
	return nil
}

// Remove kills what runs in the sandbox, and removes the directory.
func (h *host) Remove(context.Context) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.removed && h.keeper.Process != nil {
		h.removed = true
		_ = h.keeper.Process.Kill()
		_ = h.keeper.Wait()
	}
	return errors.Join(os.RemoveAll(h.dir), os.RemoveAll(h.dir+".tmp"))
}

// signal sends a signal to all that runs in the sandbox but its first process.
func (h *host) signal(signal syscall.Signal) {
	keeper := strconv.Itoa(h.keeper.Process.Pid)
	namespace, _ := os.Readlink("/proc/" + keeper + "/ns/pid")
	entries, _ := os.ReadDir("/proc")
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if own, _ := os.Readlink("/proc/" + entry.Name() + "/ns/pid"); err == nil && own == namespace && entry.Name() != keeper {
			_ = syscall.Kill(pid, signal)
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for cmd := range h.execs { // nsenter stops itself when its child is stopped
		_ = cmd.Process.Signal(signal)
	}
}

func (h *host) enter(cmd *exec.Cmd) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.execs == nil {
		h.execs = make(map[*exec.Cmd]struct{})
	}
	h.execs[cmd] = struct{}{}
}

func (h *host) leave(cmd *exec.Cmd) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.execs, cmd)
}

// hosts is a provider of them.
type hosts struct {
	root  string
	shell string
	shred bool

	mu   sync.Mutex
	made []*host
	n    int
}

func (p *hosts) Name() string { return "hosts" }

func (p *hosts) SharesHost() bool { return true }

func (p *hosts) Create(ctx context.Context, o workspaces.CreateOptions) (workspaces.Created, error) {
	if err := ctx.Err(); err != nil {
		return workspaces.Created{}, err
	}
	if o.Image != "" || o.Limits.CPU != "" || o.Limits.Memory != "" || o.Limits.Storage != "" || o.Limits.PIDs != 0 {
		return workspaces.Created{}, fmt.Errorf("%w: no images, no limits", workspaces.ErrUnsupported)
	}
	p.mu.Lock()
	p.n++
	h := &host{dir: filepath.Join(p.root, fmt.Sprintf("ws-%d", p.n)), shell: p.shell, shred: p.shred}
	p.made = append(p.made, h)
	p.mu.Unlock()
	for _, dir := range []string{h.dir, h.dir + ".tmp"} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return workspaces.Created{}, err
		}
	}
	env := map[string]string{"PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "HOME": h.dir + ".tmp", "TMPDIR": h.dir + ".tmp", "CI": "true", "GIT_TERMINAL_PROMPT": "0"}
	maps.Copy(env, o.Env)
	env["WORKSPACE"] = h.dir
	for name, value := range env {
		h.env = append(h.env, name+"="+value)
	}
	if err := h.start(); err != nil {
		return workspaces.Created{}, errors.Join(err, h.Remove(ctx))
	}
	lifetime := o.Limits.Lifetime
	if lifetime == 0 {
		lifetime = workspaces.DefaultLimits().Lifetime
	}
	now := time.Now()
	w := New(h, Options{ID: filepath.Base(h.dir), Info: workspaces.Info{
		RunID: o.RunID, Provider: p.Name(), Repository: o.Repository, Ref: o.Ref, Commit: o.Commit,
		CreatedAt: now, ExpiresAt: now.Add(lifetime), Resource: map[string]string{"dir": h.dir},
	}})
	w.Warm()
	if err := w.SelfTest(ctx); err != nil {
		return workspaces.Created{}, errors.Join(err, w.Dispose(context.WithoutCancel(ctx)))
	}
	return workspaces.Created{Workspace: w}, nil
}

func (p *hosts) leftovers() (left []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, h := range p.made {
		if _, err := os.Stat(h.dir); err == nil {
			left = append(left, h.dir)
		}
		h.mu.Lock()
		if !h.removed {
			left = append(left, fmt.Sprintf("process %d", h.keeper.Process.Pid))
		}
		h.mu.Unlock()
	}
	return left
}

func (p *hosts) of(id string) *host {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, h := range p.made {
		if filepath.Base(h.dir) == id {
			return h
		}
	}
	return nil
}

// TestContract: without an engine, what a workspace does by way of sessions keeps the contract, under
// both shells, and whatever pieces its streams come in.
func TestContract(t *testing.T) {
	for _, kind := range []struct {
		name, shell string
		shred       bool
	}{{"dash", "dash", false}, {"bash", "bash", false}, {"shredded", "dash", true}} {
		t.Run(kind.name, func(t *testing.T) {
			if _, err := exec.LookPath(kind.shell); err != nil {
				t.Skipf("no %s on this machine", kind.shell)
			}
			if os.Getuid() != 0 {
				t.Skip("only root makes process namespaces")
			}
			byDir := new(sync.Map)
			of := func(w workspaces.Workspace) *host {
				dir := w.Info().Resource["dir"]
				p, _ := byDir.Load(filepath.Dir(dir))
				return p.(*hosts).of(filepath.Base(dir))
			}
			contracttest.Run(t, contracttest.Config{
				New: func(t testing.TB) workspaces.Provider {
					for fd := 3; fd < 1024; fd++ { // what a host has open is nowhere in a sandbox
						syscall.CloseOnExec(fd)
					}
					root, err := filepath.EvalSymlinks(t.TempDir())
					require.NoError(t, err)
					p := &hosts{root: root, shell: kind.shell, shred: kind.shred}
					byDir.Store(root, p)
					return p
				},
				Capabilities: []contracttest.Capability{contracttest.SharesHost, contracttest.Probes, contracttest.Sandbox, contracttest.Pauses, contracttest.WritesAt, contracttest.FileRepositories},
				Leftovers: func(_ context.Context, provider workspaces.Provider, _ string) ([]string, error) {
					p, ok := workspaces.As[*hosts](provider)
					if !ok {
						return nil, fmt.Errorf("%T", provider)
					}
					return p.leftovers(), nil
				},
				Remove: func(ctx context.Context, w workspaces.Workspace) error {
					return of(w).Remove(ctx)
				},
				Pause: func(_ context.Context, w workspaces.Workspace) (func() error, error) {
					of(w).signal(syscall.SIGSTOP)
					return func() error { of(w).signal(syscall.SIGCONT); return nil }, nil
				},
			})
		})
	}
}
