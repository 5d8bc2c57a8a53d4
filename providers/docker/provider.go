package docker

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/system"
	"github.com/docker/docker/client"

	"github.com/carrel-dev/carrel/providers/remote"
	"github.com/carrel-dev/carrel/workspaces"
)

// A Provider makes workspaces that are containers. Its methods are safe for concurrent use.
type Provider struct {
	settings settings
	client   client.APIClient
	owned    bool

	asking     chan struct{} // has room for one: who has put something in has engineInfo
	engineInfo *system.Info

	passed sync.Map // the images that have passed the self-test, with what of their environment it depends on
}

var (
	_ workspaces.Provider  = (*Provider)(nil)
	_ workspaces.Finder    = (*Provider)(nil)
	_ workspaces.Collector = (*Provider)(nil)
)

// New returns a provider. It contacts nothing. Errors match workspaces.ErrInvalidConfig.
func New(options Options) (*Provider, error) {
	s, err := options.settings()
	if err != nil {
		return nil, err
	}
	p := &Provider{settings: s, client: options.Client, asking: make(chan struct{}, 1)}
	if p.client == nil {
		p.owned = true
		if p.client, err = client.NewClientWithOpts(client.FromEnv, client.WithAPIVersionNegotiation()); err != nil {
			return nil, fmt.Errorf("%w: docker: %w", workspaces.ErrInvalidConfig, err)
		}
	}
	return p, nil
}

// Name is "docker".
func (p *Provider) Name() string { return "docker" }

// Close closes the connections of a client that New made. Call it after Manager.Close.
func (p *Provider) Close() error {
	if !p.owned {
		return nil
	}
	return p.client.Close()
}

// containerName is the name of a run's container for a repository: of two processes that make it at the same time, one
// meets a conflict and attaches.
func containerName(o workspaces.CreateOptions) string { return "carrel-" + o.Name }

func newID() string {
	var random [6]byte
	_, _ = rand.Read(random[:]) // never fails
	return "ws-" + hex.EncodeToString(random[:])
}

// Create makes a container and waits until commands can run in it, or attaches to the one that another process
// made for the same run and repository.
func (p *Provider) Create(ctx context.Context, o workspaces.CreateOptions) (workspaces.Created, error) {
	created, err := p.createOrAttach(ctx, o)
	if err != nil && ctx.Err() != nil {
		err = ctx.Err()
	}
	return created, p.silent(ctx, err)
}

func (p *Provider) createOrAttach(ctx context.Context, o workspaces.CreateOptions) (workspaces.Created, error) {
	if err := ctx.Err(); err != nil {
		return workspaces.Created{}, err
	}
	engine, err := p.engine(ctx)
	if err != nil {
		return workspaces.Created{}, err
	}
	given := o.Limits.Over(p.settings.Limits)
	limits, err := enforceable(given, given.Over(workspaces.DefaultLimits()), engine)
	if err != nil {
		return workspaces.Created{}, err
	}
	image := p.image(o)
	if !imageName.MatchString(image) {
		return workspaces.Created{}, fmt.Errorf("%w: %.80q is no image", workspaces.ErrInvalidInput, image)
	}
	if p.settings.Pull == PullAlways {
		if err := p.pull(ctx, image); err != nil {
			return workspaces.Created{}, err
		}
	}
	for pulled := p.settings.Pull != PullIfNotPresent; ; {
		created, err := p.create(ctx, o, image, limits)
		switch {
		case err == nil:
			return created, nil
		case errdefs.IsNotFound(err) && !pulled:
			pulled = true
			if err := p.pull(ctx, image); err != nil {
				return workspaces.Created{}, err
			}
		case errdefs.IsConflict(err):
			attached, err := p.attach(ctx, o)
			if err != nil || attached != nil {
				return workspaces.Created{Workspace: attached, Attached: true}, err
			}
		default:
			return workspaces.Created{}, mapped(err)
		}
	}
}

// create makes and starts a container, or leaves nothing. Where its name is taken, or its image missing, the error is the
// engine's.
func (p *Provider) create(ctx context.Context, o workspaces.CreateOptions, image string, limits workspaces.Limits) (created workspaces.Created, err error) {
	id := newID()
	now := p.settings.Now()
	expires := now.Add(limits.Lifetime)
	labels := p.labels(id, o, image, now, expires)
	config, host, err := p.spec(o, image, limits, labels, expires)
	if err != nil {
		return created, err
	}
	starting, cancel := context.WithTimeout(ctx, p.settings.StartTimeout)
	defer cancel()
	// A create that is broken off may still happen, later than any clean-up: it gets time to end.
	whole, stop := context.WithTimeout(context.WithoutCancel(ctx), p.settings.StartTimeout)
	defer stop()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(workspaces.CleanupTimeout, stop) })()
	reply, err := p.client.ContainerCreate(whole, config, host, nil, nil, containerName(o))
	if err != nil {
		if !errdefs.IsConflict(err) && !errdefs.IsNotFound(err) && !errdefs.IsInvalidArgument(err) {
			p.undo(ctx, containerName(o), id) // its reply may be what was lost
		}
		return created, err
	}
	defer func() {
		if err != nil {
			p.undo(ctx, reply.ID, id)
			err = unwind(ctx, err)
		}
	}()
	if err := p.client.ContainerStart(starting, reply.ID, container.StartOptions{}); err != nil {
		return created, fmt.Errorf("start of the container: %w", mapped(err))
	}
	if err := p.open(starting, reply.ID); err != nil {
		if gone := (&transport{client: p.client, id: reply.ID}).Alive(starting); errors.Is(gone, workspaces.ErrGone) {
			err = fmt.Errorf("image %q, while it was started: %w", image, gone)
		}
		return created, err
	}
	w := p.workspace(id, p.info(labels, reply.ID))
	defer func() {
		if err != nil {
			w.Close()
		}
	}()
	w.Warm()
	if err := p.selfTest(starting, reply.ID, w); err != nil {
		return created, fmt.Errorf("image %q: %w", image, err)
	}
	return workspaces.Created{Workspace: w}, nil
}

// selfTest tries the image out, once: most of a create would be spent on it.
func (p *Provider) selfTest(ctx context.Context, containerID string, w *remote.Workspace) error {
	found, err := p.client.ContainerInspect(ctx, containerID)
	if err != nil {
		return mapped(err)
	}
	tried := found.Image
	for _, variable := range found.Config.Env {
		if strings.HasPrefix(variable, "PATH=") || strings.HasPrefix(variable, "TMPDIR=") {
			tried += "\n" + variable
		}
	}
	if _, ok := p.passed.Load(tried); ok {
		return nil
	}
	if err := w.SelfTest(ctx); err != nil {
		return err
	}
	p.passed.Store(tried, nil)
	return nil
}

// unwind keeps an error of the start from being taken for a conflict or a missing image.
func unwind(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if errdefs.IsConflict(err) || errdefs.IsNotFound(err) {
		return errors.New(err.Error())
	}
	return err
}

// workspace is what a container is to its run.
func (p *Provider) workspace(id string, info workspaces.Info) *remote.Workspace {
	t := &transport{client: p.client, id: info.Resource["container.id"], user: p.user()}
	return remote.New(t, remote.Options{ID: id, Info: info})
}

// open gives the volumes, which come up as root's, to everybody in the container: one user, that is.
func (p *Provider) open(ctx context.Context, containerID string) error {
	var stderr bytes.Buffer
	t := &transport{client: p.client, id: containerID}
	exit, err := t.execAs(ctx, "0:0", []string{"chmod", "0777", workspaces.Root, home, cache}, remote.Streams{Stdout: &stderr, Stderr: &stderr})
	if err != nil {
		return err
	}
	if exit != 0 {
		return fmt.Errorf("the volumes could not be opened (exit code %d): %.300s", exit, strings.TrimSpace(stderr.String()))
	}
	return nil
}

// undo removes what a create that failed may have left, if it is that create's.
func (p *Provider) undo(ctx context.Context, container, id string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), workspaces.CleanupTimeout)
	defer cancel()
	for {
		found, err := p.client.ContainerInspect(ctx, container)
		switch {
		case err == nil:
			if found.Config != nil && found.Config.Labels[labelWorkspace] == id {
				_ = (&transport{client: p.client, id: found.ID}).Remove(ctx) // else the collection does it
			}
			return
		case errdefs.IsNotFound(err):
			return
		}
		select {
		case <-time.After(time.Second): // the engine is away: it may come back
		case <-ctx.Done():
			return
		}
	}
}

// attach returns the workspace of the name that is taken. Nil and no error: it was on its way out, and the name is free
// now.
func (p *Provider) attach(ctx context.Context, o workspaces.CreateOptions) (workspaces.Workspace, error) {
	ctx, cancel := context.WithTimeout(ctx, p.settings.StartTimeout)
	defer cancel()
	for {
		found, err := p.client.ContainerInspect(ctx, containerName(o))
		switch {
		case errdefs.IsNotFound(err):
			return nil, nil
		case err != nil:
			return nil, mapped(err)
		}
		labels := found.Config.Labels
		if !isOurs(labels, o.Deployment) || labels[labelRun] != o.RunID {
			return nil, fmt.Errorf("%w: the name %s is taken by a container that is not this run's", workspaces.ErrInvalidConfig, containerName(o))
		}
		info := p.info(labels, found.ID)
		switch {
		case found.State.Running && p.settings.Now().Before(info.ExpiresAt):
			w := p.workspace(labels[labelWorkspace], info)
			// The other process may not be done with it: what the self-test wants is all there in the end.
			if err := p.awaitReady(ctx, w); err != nil {
				w.Close()
				return nil, err
			}
			return w, nil
		case found.State.Status == container.StateCreated && p.settings.Now().Sub(info.CreatedAt) < p.settings.StartTimeout:
			// The other process is about to start it.
		default:
			if err := (&transport{client: p.client, id: found.ID}).Remove(ctx); err != nil {
				return nil, err
			}
			return nil, nil
		}
		select {
		case <-time.After(removalPoll):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (p *Provider) awaitReady(ctx context.Context, w *remote.Workspace) error {
	for {
		err := w.SelfTest(ctx)
		if err == nil || errors.Is(err, workspaces.ErrGone) || ctx.Err() != nil {
			return err
		}
		select {
		case <-time.After(removalPoll):
		case <-ctx.Done():
			return err
		}
	}
}
