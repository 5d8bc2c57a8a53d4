package workspaces

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"strings"
	"sync"
	"time"
)

// disposeTimeout bounds one disposal, which outlives the call that asked for it.
const disposeTimeout = 2 * time.Minute

// A guard stands before every workspace of a provider. It is where the rules that all
// providers share are kept: input is validated, limits filled in, a workspace that is disposed,
// expired or gone refused, errors wrapped once, the observer told.
type guard struct {
	manager   *Manager
	state     *runState
	workspace Workspace  // the provider's
	linker    LinkWriter // nil where the provider's cannot tell where a path leads
	gate      gate
	files     fileLocks
	left      chan struct{} // closed when the first disposal has ended
	leave     sync.Once

	mu       sync.Mutex
	info     Info
	disposal *disposal // under way, or done
}

type disposal struct {
	done chan struct{} // closed when it ended
	err  error
}

func newGuard(m *Manager, state *runState, workspace Workspace) *guard {
	g := &guard{manager: m, state: state, workspace: workspace, info: workspace.Info(), left: make(chan struct{})}
	g.info.RunID, g.info.Provider = state.id, m.provider.Name()
	g.linker, _ = As[LinkWriter](workspace)
	return g
}

func (g *guard) id() string { return g.workspace.ID() }

func (g *guard) Info() Info {
	g.mu.Lock()
	defer g.mu.Unlock()
	info := g.info
	info.Resource = maps.Clone(info.Resource)
	return info
}

func (g *guard) setCheckout(repository, ref, commit string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.info.Repository, g.info.Ref, g.info.Commit = repository, ref, commit
}

// ended returns why the workspace takes no calls, or nil. It notices expiry.
func (g *guard) ended() error {
	if err := g.gate.closed(); err != nil {
		return err
	}
	if err := g.expired(); err != nil {
		g.end(err)
		return err
	}
	return nil
}

// expired returns an error once the workspace's lifetime is over.
func (g *guard) expired() error {
	if expires := g.Info().ExpiresAt; !expires.IsZero() && !g.manager.now().Before(expires) {
		return fmt.Errorf("%w at %s", ErrExpired, expires.UTC().Format(time.RFC3339))
	}
	return nil
}

// end closes the workspace for calls and has the manager dispose it.
func (g *guard) end(reason error) {
	g.gate.close(reason)
	g.manager.lost(g)
}

// A view is a guard as one handle of a run sees it: it ends with the handle.
type view struct {
	*guard
	run *Run // nil: the manager's own, for checkout and BeforeRelease
}

func (v *view) ID() string        { return v.id() }
func (v *view) Unwrap() Workspace { return v.workspace }

// enter lets a call in. Its context ends with the caller's, the handle and the workspace.
func (v *view) enter(ctx context.Context) (context.Context, func(), error) {
	if err := v.ended(); err != nil {
		return nil, nil, err
	}
	if v.run == nil {
		return v.gate.enter(ctx)
	}
	ctx, leaveRun, err := v.run.gate.enter(ctx)
	if err != nil {
		return nil, nil, err
	}
	ctx, leave, err := v.gate.enter(ctx)
	if err != nil {
		leaveRun()
		return nil, nil, err
	}
	return ctx, func() { leave(); leaveRun() }, nil
}

// do is what every call goes through: it lets the call in, tells the observer, and says
// what a failure means.
func (v *view) do(ctx context.Context, operation Operation, invalid error, call func(ctx context.Context, outcome *OperationOutcome) error) (outcome OperationOutcome, err error) {
	operation.Provider = v.manager.provider.Name()
	operation.Info = v.Info()
	operation.RunID, operation.Workspace = operation.Info.RunID, v.id()
	began := time.Now()
	seen := v.manager.observe(ctx, operation)
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic in the provider: %v", p)
			outcome.Err = v.wrap(operation, err)
		}
		outcome.Duration = time.Since(began)
		seen.end(outcome)
		err = outcome.Err
	}()
	if invalid != nil {
		outcome.Err = v.wrap(operation, invalid)
		return outcome, outcome.Err
	}
	inside, leave, err := v.enter(seen.ctx)
	if err != nil {
		outcome.Err = v.wrap(operation, err)
		return outcome, outcome.Err
	}
	defer leave()
	if err := call(inside, &outcome); err != nil {
		outcome.Err = v.wrap(operation, v.meaning(ctx, inside, err))
	}
	return outcome, outcome.Err
}

// wrap names the operation and the workspace, once.
func (v *view) wrap(operation Operation, err error) error {
	var moved *MovedError
	if errors.As(err, &moved) {
		return moved
	}
	return &OpError{Op: string(operation.Kind), Workspace: v.id(), Err: err}
}

// meaning says what a failure of the provider means: the end of the call, of the handle, of
// the workspace, or just what it says.
func (v *view) meaning(ctx, inside context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if inside.Err() != nil {
		return context.Cause(inside)
	}
	if errors.Is(err, ErrGone) {
		return v.gone(err)
	}
	if !v.questionable(err) {
		return err
	}
	prober, ok := As[Prober](v.workspace)
	if !ok {
		return err
	}
	probing, cancel := context.WithTimeout(context.WithoutCancel(ctx), ProbeTimeout)
	defer cancel()
	if gone := prober.Probe(probing); errors.Is(gone, ErrGone) {
		return fmt.Errorf("%w (%w)", v.gone(gone), err)
	}
	return err
}

// gone ends a workspace that is not there any more, and says why: what ends by itself at its expiry has expired.
func (v *view) gone(err error) error {
	if expired := v.expired(); expired != nil {
		err = expired
	}
	v.end(err)
	return err
}

// questionable says that a failure may mean that the workspace is gone. What a provider
// says of a file or of its input, it has looked up in a workspace that is
// there; only on the host does a missing file look like a missing workspace.
func (v *view) questionable(err error) bool {
	var moved *MovedError
	switch {
	case errors.As(err, &moved),
		errors.Is(err, ErrInvalidInput), errors.Is(err, ErrTooLarge), errors.Is(err, ErrUnsupported),
		errors.Is(err, fs.ErrPermission), errors.Is(err, fs.ErrExist):
		return false
	case errors.Is(err, fs.ErrNotExist):
		_, host := As[HostDir](v.workspace)
		return host
	}
	return true
}

// Exec runs a command. See Workspace.
func (v *view) Exec(ctx context.Context, command Command) (Result, error) {
	invalid := checkCommand(&command)
	if expires := v.Info().ExpiresAt; !expires.IsZero() {
		// An expired workspace is refused below; what is left here is at least a moment.
		command.Timeout = min(command.Timeout, max(expires.Sub(v.manager.now()), time.Millisecond))
	}
	sinks := [2]*stream{}
	out, errs := command.Stdout, command.Stderr
	outcome, err := v.do(ctx, Operation{Kind: OperationExec, Command: command}, invalid, func(ctx context.Context, outcome *OperationOutcome) error {
		var hurry <-chan struct{}
		if out != nil || errs != nil {
			patient, cancel := context.WithTimeout(ctx, command.Timeout)
			defer cancel()
			hurry = patient.Done()
			defer func() { cancel(); sinks[0].close(); sinks[1].close() }()
		}
		sinks[0], sinks[1] = newStream(out, hurry), newStream(errs, hurry)
		command.Stdout, command.Stderr = sinks[0], sinks[1]

		began := time.Now()
		result, err := v.workspace.Exec(ctx, command)
		result.Duration = time.Since(began)
		result.Stdout, result.StdoutTruncated, result.StdoutBytes = sinks[0].result()
		result.Stderr, result.StderrTruncated, result.StderrBytes = sinks[1].result()
		outcome.Result = result
		return err
	})
	return outcome.Result, err
}

func (s *stream) result() (text string, truncated bool, total int64) {
	return s.String(), s.Truncated(), s.Bytes()
}

// checkCommand validates a command and fills in what it leaves out.
func checkCommand(c *Command) error {
	if len(c.Args) == 0 || c.Args[0] == "" {
		return fmt.Errorf("%w: the command has no program", ErrInvalidInput)
	}
	for i, arg := range c.Args {
		if strings.ContainsRune(arg, 0) {
			return fmt.Errorf("%w: argument %d of the command contains a NUL byte", ErrInvalidInput, i)
		}
	}
	switch {
	case c.Timeout < 0:
		return fmt.Errorf("%w: negative timeout %s", ErrInvalidInput, c.Timeout)
	case c.Timeout > ExecTimeoutMax:
		return fmt.Errorf("%w: timeout %s is longer than %s", ErrInvalidInput, c.Timeout, ExecTimeoutMax)
	case c.Timeout == 0:
		c.Timeout = ExecTimeout
	}
	if err := CheckEnv(c.Env); err != nil {
		return err
	}
	if c.Dir == "" {
		c.Dir = "."
	}
	dir, err := CleanPath(c.Dir)
	if err != nil {
		return err
	}
	c.Dir = dir
	return nil
}

// ReadFile returns a file's content. See Workspace.
func (v *view) ReadFile(ctx context.Context, path string) ([]byte, error) {
	path, invalid := CleanPath(path)
	var data []byte
	_, err := v.do(ctx, Operation{Kind: OperationRead, Path: path}, invalid, func(ctx context.Context, outcome *OperationOutcome) (err error) {
		data, err = v.workspace.ReadFile(ctx, path)
		if err == nil && len(data) > FileMaxBytes {
			data, err = nil, fmt.Errorf("%w: %q has more than %d bytes", ErrTooLarge, path, FileMaxBytes)
		}
		outcome.Bytes = len(data)
		return err
	})
	return data, err
}

// WriteFile replaces or creates a file. See Workspace.
func (v *view) WriteFile(ctx context.Context, path string, data []byte) error {
	return v.writeWith(ctx, path, func(string, string) ([]byte, error) { return data, nil })
}

// WriteFileAt is WriteFile for a caller that has to know where a path leads. See LinkWriter.
func (v *view) WriteFileAt(ctx context.Context, path, at string, data []byte) error {
	path, invalid := CleanPath(path)
	if invalid == nil {
		at, invalid = CleanPath(at)
	}
	if invalid == nil && v.linker == nil {
		invalid = fmt.Errorf("%w: the provider cannot tell where a path leads", ErrUnsupported)
	}
	if invalid == nil {
		unlock, err := v.files.lock(ctx, at)
		if err != nil {
			return err
		}
		defer unlock()
	}
	return v.write(ctx, path, at, data, invalid)
}

// writeWith writes what content makes, while nobody else writes the file. content gets the clean path and
// where it leads as far as known; it is called again when a link led elsewhere.
func (v *view) writeWith(ctx context.Context, path string, content func(path, at string) ([]byte, error)) error {
	path, invalid := CleanPath(path)
	if invalid != nil {
		return v.write(ctx, path, path, nil, invalid)
	}
	at := path
	// Who changes a link at every try only keeps himself waiting.
	for range 8 {
		err := func() error {
			key := at
			if v.linker == nil {
				key = "" // which paths lead to one file is not known: all wait for each other
			}
			unlock, err := v.files.lock(ctx, key)
			if err != nil {
				return err
			}
			defer unlock()
			data, err := content(path, at)
			if err != nil {
				return err
			}
			return v.write(ctx, path, at, data, nil)
		}()
		var moved *MovedError
		if !errors.As(err, &moved) {
			return err
		}
		at = moved.At
	}
	return v.write(ctx, path, at, nil, fmt.Errorf("%w: the links in %q change all the time", ErrInvalidInput, path))
}

func (v *view) write(ctx context.Context, path, at string, data []byte, invalid error) error {
	if invalid == nil && len(data) > FileMaxBytes {
		invalid = fmt.Errorf("%w: %d bytes for %q, at most %d are written", ErrTooLarge, len(data), path, FileMaxBytes)
	}
	var moved *MovedError
	_, err := v.do(ctx, Operation{Kind: OperationWrite, Path: path}, invalid, func(ctx context.Context, outcome *OperationOutcome) error {
		var err error
		if v.linker == nil {
			err = v.workspace.WriteFile(ctx, path, data)
		} else {
			err = v.linker.WriteFileAt(ctx, path, at, data)
		}
		if errors.As(err, &moved) {
			return nil // not a failure: the write goes on there
		}
		if err == nil {
			outcome.Bytes = len(data)
		}
		return err
	})
	if err == nil && moved != nil {
		return moved
	}
	return err
}

// Dispose ends the workspace for the run that holds it. See Workspace.
func (v *view) Dispose(ctx context.Context) error {
	v.gate.close(ErrDisposed)
	v.manager.forget(v.guard)
	return v.dispose(ctx)
}

// dispose removes what is behind, once, whoever asks and however often. A disposal that failed
// is tried again by the next call.
func (g *guard) dispose(ctx context.Context) error {
	g.gate.close(ErrDisposed)
	g.mu.Lock()
	d := g.disposal
	if d == nil || d.failed() {
		d = &disposal{done: make(chan struct{})}
		g.disposal = d
		end := g.manager.tasks.begin("the disposal of workspace " + g.id())
		go func() {
			defer end()
			defer close(d.done)
			d.err = g.remove(context.WithoutCancel(ctx))
			g.manager.disposed(g, d.err)
			g.leave.Do(func() { close(g.left) })
		}()
	}
	g.mu.Unlock()
	select {
	case <-d.done:
		return d.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// failed says that the disposal ended and something is left.
func (d *disposal) failed() bool {
	select {
	case <-d.done:
		return d.err != nil
	default:
		return false
	}
}

func (g *guard) remove(ctx context.Context) (err error) {
	operation := Operation{Kind: OperationDispose, Provider: g.manager.provider.Name(), Workspace: g.id(), Info: g.Info()}
	operation.RunID = operation.Info.RunID
	began := time.Now()
	seen := g.manager.observe(ctx, operation)
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic in the provider: %v", p)
		}
		if err != nil {
			err = &OpError{Op: "dispose", Workspace: g.id(), Err: err}
		}
		g.manager.endCounted(seen, OperationOutcome{Err: err, Duration: time.Since(began)})
	}()
	ctx, cancel := context.WithTimeout(seen.ctx, disposeTimeout)
	defer cancel()
	return g.workspace.Dispose(ctx)
}

// An observed operation has started; the caller ends it.
type observed struct {
	observer  Observer
	ctx       context.Context
	operation Operation
}

func (m *Manager) observe(ctx context.Context, operation Operation) observed {
	if m.options.Observer == nil {
		return observed{ctx: ctx}
	}
	return observed{m.options.Observer, m.options.Observer.Start(ctx, operation), operation}
}

func (o observed) end(outcome OperationOutcome) {
	if o.observer != nil {
		o.observer.End(o.ctx, o.operation, outcome)
	}
}

// endCounted ends an operation with the number of workspaces there are after it.
func (m *Manager) endCounted(o observed, outcome OperationOutcome) {
	m.counting.Lock()
	defer m.counting.Unlock()
	outcome.Live = m.Live()
	o.end(outcome)
}
