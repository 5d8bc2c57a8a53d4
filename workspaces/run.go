package workspaces

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// A Run is one handle of an open run. It is safe for concurrent use.
type Run struct {
	manager *Manager
	state   *runState
	gate    gate

	ended    bool          // guarded by Manager.mu
	released chan struct{} // closed when Release has done its work
	err      error         // what it met; set before released is closed
}

// ID is the run's id.
func (r *Run) ID() string { return r.state.id }

// AcquireOptions say which workspace a run wants.
type AcquireOptions struct {
	// Repository is "owner/name" (GitHub) or an https URL. Empty: an empty git repository.
	Repository string
	// Ref is a branch, a tag or a full commit id. Empty: the one that is held, else the
	// remote's HEAD.
	Ref string
	// Image needs Options.AllowImage. Empty: the one that is held, else the manager's.
	Image string
	// Env and Limits win over the manager's, for a create.
	Env    map[string]string
	Limits Limits
}

// Acquired is a workspace and whether it was there already.
type Acquired struct {
	Workspace Workspace
	// Reused: the run held it, was creating it in another call, or left it to be found.
	Reused bool
}

// Acquire returns the run's workspace of a repository, created and checked out when there
// is none. Concurrent calls share one create, which is cancelled when the last of them
// leaves; a failed one is not remembered.
//
// Errors: ErrInvalidInput for what the rules or AllowRepo or AllowImage refuse,
// ErrRefHeld, ErrLimitReached, ErrRunEnded, ErrClosed, and what creating can meet:
// ErrUnavailable, ErrUnsupported, ErrGone, a *CheckoutError.
func (r *Run) Acquire(ctx context.Context, options AcquireOptions) (Acquired, error) {
	m := r.manager
	inside, leave, err := r.gate.enter(ctx)
	if err != nil {
		return Acquired{}, err
	}
	defer leave()
	if options, err = m.allowed(inside, r.ID(), options); err != nil {
		return Acquired{}, r.why(ctx, inside, err)
	}
	m.collectSometimes()
	if err := m.find(inside, r.state); err != nil {
		return Acquired{}, r.why(ctx, inside, err)
	}
	if err := inside.Err(); err != nil {
		return Acquired{}, r.why(ctx, inside, err)
	}
	h, reused, err := m.hold(ctx, r, options)
	if err != nil {
		return Acquired{}, err
	}
	defer m.letGo(r.state, h)
	select {
	case <-h.ready:
	case <-inside.Done():
		return Acquired{}, r.why(ctx, inside, inside.Err())
	}
	if h.err != nil {
		return Acquired{}, r.why(ctx, inside, h.err)
	}
	return Acquired{Workspace: &view{h.guard, r}, Reused: reused}, nil
}

// why says why a call ended: its own context, the handle, or err.
func (r *Run) why(ctx, inside context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case inside.Err() != nil:
		return context.Cause(inside)
	}
	return err
}

// allowed validates what a call asks for, in normal form.
func (m *Manager) allowed(ctx context.Context, runID string, options AcquireOptions) (AcquireOptions, error) {
	if options.Repository != "" {
		url, err := NormalizeRepository(options.Repository, m.options.AllowFileRepositories)
		if err != nil {
			return options, err
		}
		options.Repository = url
		if m.options.AllowRepo != nil {
			if err := m.options.AllowRepo(ctx, runID, url); err != nil {
				return options, fmt.Errorf("%w: repository %s is not allowed: %w", ErrInvalidInput, url, err)
			}
		}
	}
	if options.Ref != "" {
		if options.Repository == "" {
			return options, fmt.Errorf("%w: a ref without a repository", ErrInvalidInput)
		}
		if err := CheckRef(options.Ref); err != nil {
			return options, err
		}
	}
	if options.Image != "" {
		if m.options.AllowImage == nil {
			return options, fmt.Errorf("%w: an image cannot be chosen here", ErrInvalidInput)
		}
		if err := CheckImage(options.Image); err != nil {
			return options, err
		}
		if err := m.options.AllowImage(ctx, runID, options.Image); err != nil {
			return options, fmt.Errorf("%w: image %q is not allowed: %w", ErrInvalidInput, options.Image, err)
		}
	}
	if err := CheckEnv(options.Env); err != nil {
		return options, err
	}
	if err := options.Limits.Validate(); err != nil {
		return options, err
	}
	env := maps.Clone(m.options.Env)
	if env == nil {
		env = make(map[string]string)
	}
	maps.Copy(env, options.Env)
	options.Env = env
	options.Limits = options.Limits.Over(m.options.Limits)
	return options, nil
}

// hold returns the run's entry for a repository, its create started when there was none. The
// caller lets it go.
func (m *Manager) hold(ctx context.Context, r *Run, options AcquireOptions) (h *held, reused bool, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	state, key := r.state, options.Repository
	if err := r.gate.closed(); err != nil {
		return nil, false, err
	}
	m.dropEndedLocked(state)
	if h := state.held[key]; h != nil {
		if options.Ref != "" && options.Ref != h.ref {
			return nil, false, fmt.Errorf("%w: this run holds %s at ref %q; dispose that workspace first, or work in it", ErrRefHeld, key, cmp.Or(h.ref, "HEAD"))
		}
		if options.Image != "" && options.Image != h.image {
			return nil, false, fmt.Errorf("%w: this run holds that workspace with image %q", ErrRefHeld, cmp.Or(h.image, "(default)"))
		}
		h.waiters++
		return h, true, nil
	}
	if len(state.held) >= m.options.MaxPerRun {
		return nil, false, fmt.Errorf("%w: this run holds %d workspaces, the most it may (%s); dispose one first",
			ErrLimitReached, len(state.held), strings.Join(state.idsLocked(), ", "))
	}
	if m.options.MaxTotal > 0 {
		total := 0
		for _, s := range m.runs {
			total += len(s.held)
		}
		if total >= m.options.MaxTotal {
			return nil, false, fmt.Errorf("%w: %d workspaces are open in this process, the most there may be; try again later", ErrLimitReached, total)
		}
	}
	h = &held{
		repository: key, ref: options.Ref, image: options.Image,
		ready: make(chan struct{}), waiters: 1,
	}
	creating, abort := context.WithCancelCause(context.WithoutCancel(ctx))
	h.abort = abort
	state.held[key] = h
	clear(state.lost)
	after := []<-chan struct{}{state.after}
	if gone := state.leaving[key]; gone != nil {
		after = append(after, gone)
	}
	end := m.tasks.begin(fmt.Sprintf("a create for run %q", r.ID()))
	go func() {
		defer end()
		defer abort(nil)
		m.create(creating, state, h, options, after)
	}()
	return h, false, nil
}

// letGo leaves an entry. The last one to leave a create under way aborts it.
func (m *Manager) letGo(state *runState, h *held) {
	m.mu.Lock()
	defer m.mu.Unlock()
	h.waiters--
	select {
	case <-h.ready:
		return
	default:
	}
	if h.waiters == 0 && h.guard == nil {
		h.abort(context.Canceled)
		m.abandonLocked(state, h)
	}
}

// abandonLocked takes a create that is being aborted out of its run: the next create of the key waits
// for its end.
func (m *Manager) abandonLocked(state *runState, h *held) {
	if state.held[h.repository] != h {
		return
	}
	delete(state.held, h.repository)
	m.leaveLocked(state, h.repository, h.ready)
}

// dropEndedLocked takes workspaces that have expired, or were lost or disposed through another
// handle, out of the run.
func (m *Manager) dropEndedLocked(state *runState) {
	for _, h := range state.held {
		if h.guard == nil {
			continue
		}
		if expired := h.guard.expired(); expired != nil {
			h.guard.gate.close(expired)
		}
		if h.guard.gate.closed() != nil {
			m.lostLocked(h.guard)
		}
	}
}

// create makes a workspace and checks it out. It is all or nothing.
func (m *Manager) create(ctx context.Context, state *runState, h *held, options AcquireOptions, after []<-chan struct{}) {
	began := time.Now()
	info := Info{RunID: state.id, Provider: m.provider.Name(), Repository: h.repository, Ref: h.ref, Image: h.image}
	seen := m.observe(ctx, Operation{Kind: OperationCreate, Provider: info.Provider, RunID: state.id, Info: info})
	outcome := OperationOutcome{Info: info}

	g, err := func() (g *guard, err error) {
		defer func() {
			if p := recover(); p != nil {
				err = fmt.Errorf("panic in the provider: %v", p)
			}
		}()
		for _, earlier := range after {
			if earlier == nil {
				continue
			}
			select {
			case <-earlier:
			case <-seen.ctx.Done():
				return nil, context.Cause(seen.ctx)
			}
		}
		return m.build(seen.ctx, state, h, options, &outcome)
	}()
	outcome.Duration = time.Since(began)

	m.mu.Lock()
	aborted := ctx.Err() != nil
	if err == nil && aborted {
		err = context.Cause(ctx)
	}
	if err == nil {
		h.guard = g
		outcome.Workspace, outcome.Info = g.id(), g.Info()
	}
	m.mu.Unlock()
	if err != nil {
		if aborted {
			err = context.Cause(ctx)
		}
		if g != nil {
			cleaning, cancel := context.WithTimeout(context.WithoutCancel(ctx), CleanupTimeout)
			m.failed(g.dispose(cleaning))
			cancel()
		}
		var op *OpError
		if !errors.As(err, &op) {
			err = &OpError{Op: "create", Err: err}
		}
	}
	outcome.Err = err
	m.endCounted(seen, outcome)

	m.mu.Lock()
	defer m.mu.Unlock()
	h.err = err
	if err != nil && state.held[h.repository] == h {
		delete(state.held, h.repository)
	}
	close(h.ready)
}

// build is the part of create that can fail; what it returns with an error is to be disposed.
func (m *Manager) build(ctx context.Context, state *runState, h *held, options AcquireOptions, outcome *OperationOutcome) (*guard, error) {
	began := time.Now()
	created, err := m.provider.Create(ctx, CreateOptions{
		Name:          digest(m.options.Deployment, state.id, h.repository)[:24],
		RunID:         state.id,
		Deployment:    m.options.Deployment,
		Repository:    h.repository,
		RepositoryKey: keyed(h.repository),
		Ref:           h.ref,
		Image:         cmp.Or(options.Image, m.options.Image),
		Env:           options.Env,
		Limits:        options.Limits,
	})
	outcome.Provision = time.Since(began)
	if err != nil {
		return nil, err
	}
	g := newGuard(m, state, created.Workspace)
	if err := ctx.Err(); err != nil {
		return g, err
	}
	began = time.Now()
	outcome.Reused = created.Attached
	err = m.checkout(ctx, g, h.repository, h.ref, created.Attached)
	outcome.Checkout = time.Since(began)
	return g, err
}

// checkout brings the repository into a new workspace. One that another process made may have it already.
func (m *Manager) checkout(ctx context.Context, g *guard, repository, ref string, attached bool) (err error) {
	g.setCheckout(repository, ref, "")
	v := &view{guard: g}
	if attached {
		if commit, ok, err := readBase(ctx, v); err != nil || ok {
			g.setCheckout(repository, ref, commit)
			return err
		}
	}
	onHost := repository != "" && m.fetcher != nil && (m.options.HostFetch != nil || strings.HasPrefix(repository, "file:"))
	info := g.Info()
	began := time.Now()
	seen := m.observe(ctx, Operation{Kind: OperationCheckout, Provider: info.Provider, RunID: info.RunID, Workspace: g.id(), Info: info, OnHost: onHost})
	defer func() {
		if err != nil {
			err = &OpError{Op: "checkout", Workspace: g.id(), Err: err}
		}
		seen.end(OperationOutcome{Err: err, Duration: time.Since(began), Info: g.Info()})
	}()
	var commit string
	if onHost {
		commit, err = m.checkoutFromHost(seen.ctx, v, info.RunID, repository, ref)
	} else {
		commit, err = checkout(seen.ctx, v, repository, ref)
	}
	g.setCheckout(repository, ref, commit)
	return err
}

func (m *Manager) checkoutFromHost(ctx context.Context, v *view, runID, repository, ref string) (commit string, err error) {
	fetched, err := m.fetcher.fetch(ctx, runID, repository, ref)
	if err != nil {
		return "", err
	}
	defer fetched.close()
	if err := initRepository(ctx, v); err != nil {
		return "", err
	}
	if fetched.Commit != "" {
		if err := m.fetcher.inject(ctx, v, fetched); err != nil {
			return "", err
		}
	}
	return fetched.Commit, checkoutFetched(ctx, v, repository, ref, fetched.Commit, fetched.Branch)
}

// find asks the provider, once a run, for what other processes left.
func (m *Manager) find(ctx context.Context, state *runState) error {
	if state.after != nil {
		select {
		case <-state.after:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if m.finder == nil {
		return nil
	}
	for {
		m.mu.Lock()
		asking := state.finding
		if state.found {
			m.mu.Unlock()
			return nil
		}
		if asking == nil {
			state.finding = make(chan struct{})
			m.mu.Unlock()
			break
		}
		m.mu.Unlock()
		select {
		case <-asking:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	guards, err := m.attach(ctx, state)
	m.mu.Lock()
	defer m.mu.Unlock()
	close(state.finding)
	state.finding = nil
	if err != nil {
		return &OpError{Op: "find", Err: err}
	}
	state.found = true
	for _, g := range guards {
		info := g.Info()
		if state.held[info.Repository] != nil {
			continue
		}
		ready := make(chan struct{})
		close(ready)
		state.held[info.Repository] = &held{
			repository: info.Repository, ref: info.Ref, image: info.Image,
			ready: ready, abort: func(error) {}, guard: g,
		}
	}
	return nil
}

// attach finds the run's workspaces and reads the commit of those that do not know it. One whose
// checkout never ended is left alone: the next create of its name meets it.
func (m *Manager) attach(ctx context.Context, state *runState) ([]*guard, error) {
	found, err := m.finder.Find(ctx, m.options.Deployment, state.id)
	if err != nil {
		return nil, err
	}
	var guards []*guard
	for _, w := range found {
		g := newGuard(m, state, w)
		info := g.Info()
		if info.Commit == "" && info.Repository != "" {
			commit, ok, err := readBase(ctx, &view{guard: g})
			if err != nil {
				return nil, err
			}
			if !ok {
				continue
			}
			g.setCheckout(info.Repository, info.Ref, commit)
		}
		guards = append(guards, g)
	}
	return guards, nil
}

// idsLocked lists what the run holds, oldest first.
func (s *runState) idsLocked() []string {
	var ids []string
	for _, g := range s.guardsLocked() {
		ids = append(ids, g.id())
	}
	return ids
}

func (s *runState) guardsLocked() []*guard {
	var guards []*guard
	for _, h := range s.held {
		if h.guard != nil {
			guards = append(guards, h.guard)
		}
	}
	slices.SortFunc(guards, func(a, b *guard) int {
		return cmp.Or(a.Info().CreatedAt.Compare(b.Info().CreatedAt), strings.Compare(a.id(), b.id()))
	})
	return guards
}

// Get returns the run's workspace of that id or, for an empty id, its only one. It finds
// those that another process left, where the provider can. Errors: ErrNotFound, which also
// lists the ids the run holds; ErrExpired and ErrGone for one that was;
// ErrInvalidInput for several and no id; ErrRunEnded, ErrClosed.
func (r *Run) Get(ctx context.Context, id string) (Workspace, error) {
	m := r.manager
	inside, leave, err := r.gate.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	if err := m.find(inside, r.state); err != nil {
		return nil, r.why(ctx, inside, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.dropEndedLocked(r.state)
	guards := r.state.guardsLocked()
	if id == "" {
		switch {
		case len(guards) == 1:
			return &view{guards[0], r}, nil
		case len(guards) > 1:
			return nil, fmt.Errorf("%w: this run has several workspaces, name one of: %s", ErrInvalidInput, strings.Join(r.state.idsLocked(), ", "))
		}
		for lost, reason := range r.state.lost {
			return nil, fmt.Errorf("workspace %s is %w", lost, reason)
		}
		return nil, fmt.Errorf("workspace %w: this run has none", ErrNotFound)
	}
	for _, g := range guards {
		if g.id() == id {
			return &view{g, r}, nil
		}
	}
	if reason := r.state.lost[id]; reason != nil {
		return nil, fmt.Errorf("workspace %s is %w", id, reason)
	}
	return nil, fmt.Errorf("workspace %.80q %w; this run has: %s", id, ErrNotFound, cmp.Or(strings.Join(r.state.idsLocked(), ", "), "none"))
}

// Workspaces returns what the run holds in this process, oldest first.
func (r *Run) Workspaces() []Workspace {
	r.manager.mu.Lock()
	defer r.manager.mu.Unlock()
	var all []Workspace
	for _, g := range r.state.guardsLocked() {
		all = append(all, &view{g, r})
	}
	return all
}

// Dispose disposes one workspace of the run and forgets it. ErrNotFound where the run
// holds none of that id.
func (r *Run) Dispose(ctx context.Context, id string) error {
	workspace, err := r.Get(ctx, id)
	if err != nil {
		return err
	}
	return workspace.Dispose(ctx)
}

// Release ends the handle: calls under it get ErrRunEnded from now on, its creates are
// aborted, its commands stopped. The last open handle of an id also disposes the run's
// workspaces, after Options.BeforeRelease, unless outcome is Interrupted. Release waits
// for all of it until ctx ends; the work itself goes on, and Manager.Close waits for it.
// It may be called again: the first outcome counts.
func (r *Run) Release(ctx context.Context, outcome Outcome) error {
	m := r.manager
	m.mu.Lock()
	first := !r.ended
	r.ended = true
	if first {
		end := m.tasks.begin(fmt.Sprintf("the release of run %q", r.ID()))
		r.gate.close(ErrRunEnded)
		delete(r.state.handles, r)
		last := len(r.state.handles) == 0 && outcome != Interrupted
		if last {
			// From here on the id opens anew.
			r.state.handles = nil
		}
		go func() {
			defer end()
			defer close(r.released)
			r.err = m.release(context.WithoutCancel(ctx), r, outcome, last)
		}()
	}
	m.mu.Unlock()
	select {
	case <-r.released:
		return r.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// release waits for the calls under a handle to leave and, for the last one, disposes what the
// run holds.
func (m *Manager) release(ctx context.Context, r *Run, outcome Outcome, last bool) error {
	leaving := time.NewTimer(2 * CancelReturn)
	defer leaving.Stop()
	select {
	case <-r.gate.left():
	case <-leaving.C: // a call that does not keep its bound holds nobody else up
	}
	state := r.state
	if !last {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.dropIfEmptyLocked(state)
		return nil
	}
	m.mu.Lock()
	guards := state.guardsLocked()
	m.mu.Unlock()
	if m.options.BeforeRelease != nil && len(guards) > 0 {
		m.beforeRelease(ctx, state.id, outcome, guards)
	}

	// Creates that were being aborted are waited for as well: after this nothing is left.
	m.mu.Lock()
	var aborted []<-chan struct{}
	for _, gone := range state.leaving {
		aborted = append(aborted, gone)
	}
	for _, h := range state.held {
		aborted = append(aborted, h.ready)
	}
	clear(state.held)
	m.mu.Unlock()
	errs := make(chan error, len(guards))
	for _, g := range guards {
		go func() { errs <- g.dispose(ctx) }()
	}
	var failures []error
	for range guards {
		failures = append(failures, <-errs)
	}
	for _, gone := range aborted {
		<-gone
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.runs[state.id] == state {
		delete(m.runs, state.id)
	}
	close(state.settled)
	return errors.Join(failures...)
}

// beforeRelease calls the caller's hook, with workspaces that still work.
func (m *Manager) beforeRelease(ctx context.Context, runID string, outcome Outcome, guards []*guard) {
	ctx, cancel := context.WithTimeout(ctx, BeforeReleaseTimeout)
	defer cancel()
	var all []Workspace
	for _, g := range guards {
		if g.ended() == nil {
			all = append(all, &view{guard: g})
		}
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			if p := recover(); p != nil {
				m.failed(fmt.Errorf("panic in BeforeRelease: %v", p))
			}
		}()
		m.options.BeforeRelease(ctx, runID, outcome, all)
	}()
	select {
	case <-done:
	case <-ctx.Done():
		m.failed(fmt.Errorf("BeforeRelease of run %q took longer than %s", runID, BeforeReleaseTimeout))
	}
}
