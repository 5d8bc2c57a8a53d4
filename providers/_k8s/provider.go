package k8s

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/carrel-dev/carrel/providers/remote"
	"github.com/carrel-dev/carrel/workspaces"
)

// A Provider makes workspaces that are pods. Its methods are safe for concurrent use.
type Provider struct {
	settings settings
	client   *kubernetes.Clientset

	passed sync.Map // the images that have passed the self-test
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
	invalid := func(err error) (*Provider, error) {
		return nil, fmt.Errorf("%w: k8s: %w", workspaces.ErrInvalidConfig, err)
	}
	if s.Config == nil {
		rules := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(clientcmd.NewDefaultClientConfigLoadingRules(), nil)
		if s.Config, err = rules.ClientConfig(); err != nil {
			return invalid(err)
		}
		if s.Namespace == "" {
			if s.Namespace, _, err = rules.Namespace(); err != nil {
				return invalid(err)
			}
		}
	}
	if s.Namespace == "" {
		s.Namespace = metav1.NamespaceDefault
	}
	s.Config.QPS, s.Config.RateLimiter = -1, nil
	client, err := kubernetes.NewForConfig(s.Config)
	if err != nil {
		return invalid(err)
	}
	return &Provider{settings: s, client: client}, nil
}

// Name is "k8s".
func (p *Provider) Name() string { return "k8s" }

// Close closes idle connections to the cluster. Call it after Manager.Close.
func (p *Provider) Close() error {
	closeIdle(p.client)
	return nil
}

func closeIdle(client *kubernetes.Clientset) {
	if c, ok := client.CoreV1().RESTClient().(*rest.RESTClient); ok {
		utilnet.CloseIdleConnectionsFor(c.Client.Transport)
	}
}

func (p *Provider) pods() typedcorev1.PodInterface {
	return p.client.CoreV1().Pods(p.settings.Namespace)
}

func newID() string {
	var random [6]byte
	_, _ = rand.Read(random[:]) // never fails
	return "ws-" + hex.EncodeToString(random[:])
}

// Create makes a pod and waits until commands can run in it, or attaches to the one that another process made for the same
// run and repository.
func (p *Provider) Create(ctx context.Context, o workspaces.CreateOptions) (workspaces.Created, error) {
	starting, cancel := context.WithTimeoutCause(ctx, p.settings.StartTimeout, errStart)
	defer cancel()
	created, err := p.createOrAttach(starting, o)
	switch {
	case err == nil:
		return created, nil
	case ctx.Err() != nil:
		return workspaces.Created{}, ctx.Err()
	case errors.Is(err, context.DeadlineExceeded):
		return workspaces.Created{}, fmt.Errorf("%w: the Kubernetes API was not done within %s", workspaces.ErrUnavailable, p.settings.StartTimeout)
	}
	return workspaces.Created{}, mapped(err)
}

var errStart = errors.New("the start timeout is over")

func (p *Provider) createOrAttach(ctx context.Context, o workspaces.CreateOptions) (workspaces.Created, error) {
	if err := ctx.Err(); err != nil {
		return workspaces.Created{}, err
	}
	given := o.Limits.Over(p.settings.Limits)
	if given.PIDs != 0 {
		return workspaces.Created{}, fmt.Errorf("%w: a pod cannot bound its processes: that is the kubelet's podPidsLimit", workspaces.ErrUnsupported)
	}
	limits := given.Over(workspaces.DefaultLimits())
	image := o.Image
	if image == "" {
		image = p.settings.Image
	}
	for {
		created, err := p.create(ctx, o, image, limits)
		if !apierrors.IsAlreadyExists(err) {
			return created, err
		}
		attached, err := p.attach(ctx, o)
		if err != nil || attached != nil {
			return workspaces.Created{Workspace: attached, Attached: true}, err
		}
	}
}

// create makes a pod, or leaves nothing. Where its name is taken the error is the API server's.
func (p *Provider) create(ctx context.Context, o workspaces.CreateOptions, image string, limits workspaces.Limits) (created workspaces.Created, err error) {
	id := newID()
	spec, err := p.spec(id, o, image, limits, p.settings.Now())
	if err != nil {
		return created, err
	}
	defer func() {
		if err != nil && !apierrors.IsAlreadyExists(err) {
			p.undo(ctx, spec.Name, id)
		}
	}()
	pod, err := retry(ctx, func() (*corev1.Pod, error) {
		pod, err := p.pods().Create(ctx, spec, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) { // perhaps by a try whose answer was lost
			if there, failed := p.pods().Get(ctx, spec.Name, metav1.GetOptions{}); failed == nil && there.Labels[labelWorkspace] == id {
				return there, nil
			}
		}
		return pod, err
	})
	if err != nil {
		return created, err
	}
	if pod, err = p.await(ctx, pod); err != nil {
		return created, err
	}
	w := p.workspace(pod)
	defer func() {
		if err != nil {
			w.Close()
		}
	}()
	w.Warm()
	if err := p.selfTest(ctx, pod, w); err != nil {
		return created, fmt.Errorf("image %q: %w", image, err)
	}
	return workspaces.Created{Workspace: w}, nil
}

// selfTest tries the image out, once: most of a create would be spent on it.
func (p *Provider) selfTest(ctx context.Context, pod *corev1.Pod, w *remote.Workspace) error {
	tried := ""
	for _, status := range pod.Status.ContainerStatuses {
		tried = status.ImageID
	}
	for _, variable := range pod.Spec.Containers[0].Env {
		if variable.Name == "PATH" || variable.Name == "TMPDIR" {
			tried += "\n" + variable.Name + "=" + variable.Value
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

// workspace is what a pod is to its run.
func (p *Provider) workspace(pod *corev1.Pod) *remote.Workspace {
	t := &transport{provider: p, name: pod.Name, uid: pod.UID}
	return remote.New(t, remote.Options{ID: pod.Labels[labelWorkspace], Info: p.info(pod)})
}

// undo deletes what a create that failed may have left, if it is that create's.
func (p *Provider) undo(ctx context.Context, name, id string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), workspaces.CleanupTimeout)
	defer cancel()
	pod, err := retry(ctx, func() (*corev1.Pod, error) { return p.pods().Get(ctx, name, metav1.GetOptions{}) })
	if err == nil && pod.Labels[labelWorkspace] == id {
		_ = (&transport{provider: p, name: name, uid: pod.UID}).Remove(ctx) // else the collection does it
	}
}

// attach returns the workspace of the name that is taken. Nil and no error: it was on its way out, and the name is free
// now.
func (p *Provider) attach(ctx context.Context, o workspaces.CreateOptions) (workspaces.Workspace, error) {
	pod, err := retry(ctx, func() (*corev1.Pod, error) { return p.pods().Get(ctx, podName(o), metav1.GetOptions{}) })
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, err
	}
	info := p.info(pod)
	if !isOurs(pod, o.Deployment) || info.RunID != o.RunID {
		return nil, fmt.Errorf("%w: the name %s is taken by a pod that is not this run's", workspaces.ErrInvalidConfig, pod.Name)
	}
	if ending(pod) != "" || !p.settings.Now().Before(info.ExpiresAt) {
		return nil, (&transport{provider: p, name: pod.Name, uid: pod.UID}).Remove(ctx)
	}
	if pod, err = p.await(ctx, pod); err != nil {
		if errors.Is(err, workspaces.ErrGone) {
			return nil, nil
		}
		return nil, err
	}
	w := p.workspace(pod)
	// The other process may not be done with it: what the self-test wants is all there in the end.
	for {
		err := w.SelfTest(ctx)
		if err == nil {
			return w, nil
		}
		if errors.Is(err, workspaces.ErrGone) || errors.Is(err, workspaces.ErrUnsupported) || ctx.Err() != nil {
			w.Close()
			return nil, err
		}
		select {
		case <-time.After(podPoll):
		case <-ctx.Done():
			w.Close()
			return nil, err
		}
	}
}
