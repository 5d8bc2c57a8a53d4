package workspaces

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// A Manager holds the workspaces of all runs of one process. It is safe for
// concurrent use. Its owner calls Close.
type Manager struct {
	provider  Provider
	options   Options
	finder    Finder    // nil where workspaces do not outlive the process
	collector Collector // nil where nothing can be left behind
	fetcher   *hostFetcher
	tasks     tasks

	counting sync.Mutex // held while the observer is told of Live, so that it learns the newest number last

	mu        sync.Mutex
	closed    bool
	runs      map[string]*runState
	leftovers map[*guard]struct{} // disposals that failed
	collected time.Time           // when Acquire last started a collection
}

// A runState is what the handles of one run id share. It is guarded by Manager.mu.
type runState struct {
	id      string
	after   <-chan struct{} // closed when an earlier run of this id has left nothing
	settled chan struct{}   // closed when this one has
	handles map[*Run]struct{}
	held    map[string]*held           // by normal form of the repository
	leaving map[string]<-chan struct{} // by repository: what the next create of it waits for
	lost    map[string]error           // ids that are expired or gone, and why
	found   bool                       // the provider was asked for what other processes left
	finding chan struct{}              // closed when the question under way is answered
}

// held is a workspace of a run, or its create under way.
type held struct {
	repository, ref, image string

	ready   chan struct{} // closed when the create ended
	waiters int
	abort   context.CancelCauseFunc

	// Set before ready is closed.
	guard *guard
	err   error
}

// NewManager returns a manager of the provider's workspaces. It validates everything and
// contacts nothing; its errors match ErrInvalidConfig.
func NewManager(provider Provider, options Options) (*Manager, error) {
	if provider == nil {
		return nil, fmt.Errorf("%w: no provider", ErrInvalidConfig)
	}
	options, err := options.filled()
	if err != nil {
		return nil, err
	}
	m := &Manager{
		provider:  provider,
		options:   options,
		runs:      make(map[string]*runState),
		leftovers: make(map[*guard]struct{}),
	}
	m.finder, _ = As[Finder](provider)
	m.collector, _ = As[Collector](provider)
	if options.HostFetch != nil {
		m.fetcher, err = newHostFetcher(*options.HostFetch, m.sharesHost(), m.failed)
	} else if !m.sharesHost() && options.AllowFileRepositories {
		// A container cannot see the host's files: they are always fetched on the host.
		m.fetcher, err = newHostFetcher(HostFetch{}, false, m.failed)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalidConfig, err)
	}
	return m, nil
}

func (m *Manager) sharesHost() bool {
	sharer, ok := As[HostSharer](m.provider)
	return ok && sharer.SharesHost()
}

func (m *Manager) now() time.Time { return m.options.Now() }

func (m *Manager) failed(err error) {
	if err != nil && m.options.OnError != nil {
		m.options.OnError(err)
	}
}

// AllowsImages says whether a call may name an image.
func (m *Manager) AllowsImages() bool { return m.options.AllowImage != nil }

// Live is the number of workspaces the manager holds.
func (m *Manager) Live() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := 0
	for _, state := range m.runs {
		for _, h := range state.held {
			if h.guard != nil {
				n++
			}
		}
	}
	return n
}

// Open opens a run: a handle under which workspaces are acquired. Runs are told apart by
// their id alone; handles of one id share its workspaces. Every handle must be
// released. The error matches ErrClosed, or ErrInvalidInput for an id that is
// empty, longer than 256 bytes or not valid UTF-8 without control characters.
func (m *Manager) Open(runID string) (*Run, error) {
	if err := CheckRunID(runID); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil, fmt.Errorf("the workspace manager is %w", ErrClosed)
	}
	state := m.runs[runID]
	if state == nil || state.handles == nil {
		next := newRunState(runID)
		if state != nil {
			next.after = state.settled
		}
		state = next
		m.runs[runID] = state
	}
	run := &Run{manager: m, state: state, released: make(chan struct{})}
	state.handles[run] = struct{}{}
	return run, nil
}

func newRunState(id string) *runState {
	return &runState{
		id:      id,
		settled: make(chan struct{}),
		handles: make(map[*Run]struct{}),
		held:    make(map[string]*held),
		leaving: make(map[string]<-chan struct{}),
		lost:    make(map[string]error),
	}
}

// forget takes a workspace out of its run. The caller disposes it.
func (m *Manager) forget(g *guard) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.forgetLocked(g)
}

func (m *Manager) forgetLocked(g *guard) {
	for key, h := range g.state.held {
		if h.guard == g {
			delete(g.state.held, key)
			m.leaveLocked(g.state, key, g.left)
		}
	}
}

// leaveLocked makes the next create of a key wait for done, and for all that it would have waited for
// already.
func (m *Manager) leaveLocked(state *runState, key string, done <-chan struct{}) {
	before, left := state.leaving[key], make(chan struct{})
	state.leaving[key] = left
	end := m.tasks.begin("what is left of an earlier workspace")
	go func() {
		defer end()
		<-done
		if before != nil {
			<-before
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		if state.leaving[key] == left {
			delete(state.leaving, key)
		}
		close(left)
	}()
}

// lost forgets a workspace that is expired or gone, and disposes what is left of it.
func (m *Manager) lost(g *guard) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.lostLocked(g)
}

func (m *Manager) lostLocked(g *guard) {
	if reason := g.gate.closed(); !errors.Is(reason, ErrDisposed) {
		g.state.lost[g.id()] = reason
	}
	m.forgetLocked(g)
	end := m.tasks.begin("the disposal of workspace " + g.id())
	go func() {
		defer end()
		m.failed(g.dispose(context.Background()))
	}()
}

// disposed notes how a disposal ended.
func (m *Manager) disposed(g *guard, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err == nil {
		delete(m.leftovers, g)
	} else {
		m.leftovers[g] = struct{}{}
	}
}

// keyed returns what stands for a repository in labels and names.
func keyed(repository string) string {
	if repository == "" {
		return "none"
	}
	return digest(repository)[:16]
}

func digest(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return hex.EncodeToString(sum[:])
}

// Collect removes what is expired, ended or settled: first of this process, then,
// through the provider, of the deployment. It returns how many went. One that
// cannot be removed never stops the pass; the error then has the count.
func (m *Manager) Collect(ctx context.Context) (removed int, err error) {
	began := time.Now()
	seen := m.observe(ctx, Operation{Kind: OperationCollect, Provider: m.provider.Name()})
	defer func() {
		m.endCounted(seen, OperationOutcome{Err: err, Duration: time.Since(began), Collected: removed})
	}()
	ctx = seen.ctx
	var failures []error

	settlement := m.settlement()
	for _, g := range m.collectable(ctx, settlement) {
		if err := g.dispose(ctx); err != nil {
			failures = append(failures, err)
			continue
		}
		removed++
	}
	if m.collector != nil {
		n, err := m.collector.Collect(ctx, CollectOptions{Deployment: m.options.Deployment, Now: m.now(), Settled: settlement})
		removed += n
		if err != nil {
			failures = append(failures, err)
		}
	}
	if len(failures) > 0 {
		return removed, &OpError{Op: "collect", Err: fmt.Errorf("%d could not be removed: %w", len(failures), errors.Join(failures...))}
	}
	return removed, nil
}

// collectable takes out of their runs the workspaces of this process that are expired or whose
// run has settled, and adds those that an earlier disposal left.
func (m *Manager) collectable(ctx context.Context, settlement func(context.Context, string) Settlement) []*guard {
	m.mu.Lock()
	ids := slices.Collect(maps.Keys(m.runs))
	m.mu.Unlock()
	settled := make(map[string]bool)
	for _, id := range ids {
		settled[id] = settlement(ctx, id) == RunSettled
	}

	m.mu.Lock()
	defer m.mu.Unlock()
	guards := slices.Collect(maps.Keys(m.leftovers))
	for id, state := range m.runs {
		for _, h := range state.held {
			if h.guard == nil {
				continue
			}
			if expired := h.guard.expired(); expired != nil {
				h.guard.gate.close(expired)
				state.lost[h.guard.id()] = expired
			} else if !settled[id] {
				continue
			}
			m.forgetLocked(h.guard)
			guards = append(guards, h.guard)
		}
		m.dropIfEmptyLocked(state)
	}
	return guards
}

// dropIfEmptyLocked forgets a run that nobody holds a handle of and that holds nothing.
func (m *Manager) dropIfEmptyLocked(state *runState) {
	if state.handles != nil && len(state.handles) == 0 && len(state.held) == 0 && m.runs[state.id] == state {
		delete(m.runs, state.id)
		close(state.settled)
	}
}

// settlement is IsSettled, asked once a run and pass. What it cannot say keeps.
func (m *Manager) settlement() func(context.Context, string) Settlement {
	var mu sync.Mutex
	known := make(map[string]Settlement)
	return func(ctx context.Context, runID string) Settlement {
		if m.options.IsSettled == nil {
			return SettlementUnknown
		}
		mu.Lock()
		defer mu.Unlock()
		if s, ok := known[runID]; ok {
			return s
		}
		s, err := m.options.IsSettled(ctx, runID)
		if err != nil {
			m.failed(fmt.Errorf("whether run %q has settled: %w", runID, err))
			s = SettlementUnknown
		}
		known[runID] = s
		return s
	}
}

// collectSometimes starts a collection in the background when the last is long enough ago.
func (m *Manager) collectSometimes() {
	if m.options.CollectInterval < 0 {
		return
	}
	m.mu.Lock()
	due := !m.closed && (m.collected.IsZero() || m.now().Sub(m.collected) >= m.options.CollectInterval)
	if due {
		m.collected = m.now()
	}
	m.mu.Unlock()
	if !due {
		return
	}
	end := m.tasks.begin("a collection")
	go func() {
		defer end()
		ctx, cancel := context.WithTimeout(context.Background(), disposeTimeout)
		defer cancel()
		_, err := m.Collect(ctx)
		m.failed(err)
	}()
}

// Close aborts creates, disposes every workspace and waits for it, and for disposals that
// started earlier, until ctx ends (CloseTimeout when it has no deadline). The error
// says what is left. Every later Open and Acquire is ErrClosed. It may be called
// again.
func (m *Manager) Close(ctx context.Context) error {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, CloseTimeout)
		defer cancel()
	}
	m.mu.Lock()
	m.closed = true
	guards := slices.Collect(maps.Keys(m.leftovers))
	for _, state := range m.runs {
		for run := range state.handles {
			run.gate.close(fmt.Errorf("the workspace manager is %w", ErrClosed))
		}
		for _, h := range state.held {
			h.abort(ErrClosed)
			if h.guard != nil {
				guards = append(guards, h.guard)
			}
		}
		clear(state.held)
	}
	m.mu.Unlock()

	errs := make([]error, len(guards))
	var disposals sync.WaitGroup
	for i, g := range guards {
		disposals.Go(func() { errs[i] = g.dispose(ctx) })
	}
	disposals.Wait()
	left := m.tasks.wait(ctx)
	if len(left) > 0 {
		errs = append(errs, fmt.Errorf("close: still under way: %s: %w", strings.Join(left, ", "), ctx.Err()))
	}
	return errors.Join(errs...)
}
