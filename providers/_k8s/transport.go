package k8s

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/httpstream"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/remotecommand"
	utilexec "k8s.io/client-go/util/exec"

	"github.com/carrel-dev/carrel/providers/remote"
	"github.com/carrel-dev/carrel/workspaces"
)

// A transport is the way into one pod.
type transport struct {
	provider *Provider
	name     string
	uid      types.UID
}

var _ remote.Transport = (*transport)(nil)

// Exec runs argv in the pod's container, over a WebSocket or, where something on the way knows none, SPDY.
func (t *transport) Exec(ctx context.Context, argv []string, streams remote.Streams) (exit int, err error) {
	exec := t.provider.client.CoreV1().RESTClient().Post().Namespace(t.provider.settings.Namespace).Resource("pods").Name(t.name).SubResource("exec").
		VersionedParams(&corev1.PodExecOptions{Container: containerName, Command: argv, Stdin: streams.Stdin != nil, Stdout: true, Stderr: true}, scheme.ParameterCodec).URL()
	exit, err = stream(ctx, t.provider.settings.Config, exec, streams)
	if err != nil && ctx.Err() == nil && (httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err)) && !apierrors.IsNotFound(err) {
		exit, err = t.spdy(ctx, exec, streams)
	}
	switch {
	case ctx.Err() != nil:
		return 0, ctx.Err()
	case err != nil:
		return 0, t.failure(err)
	}
	return exit, nil
}

func (t *transport) spdy(ctx context.Context, exec *url.URL, streams remote.Streams) (exit int, err error) {
	executor, err := remotecommand.NewSPDYExecutor(t.provider.settings.Config, http.MethodPost, exec)
	if err != nil {
		return 0, err
	}
	if closer, ok := streams.Stdin.(io.Closer); ok {
		defer closer.Close() // ends who copies it
	}
	err = executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdin: streams.Stdin, Stdout: streams.Stdout, Stderr: streams.Stderr})
	var exited utilexec.CodeExitError
	if errors.As(err, &exited) {
		return exited.Code, nil
	}
	return 0, err
}

// failure says what an error of an exec means.
func (t *transport) failure(err error) error {
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("%w: the pod was deleted", workspaces.ErrGone)
	}
	if apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) {
		return err
	}
	if mapped := mapped(err); errors.Is(mapped, workspaces.ErrUnavailable) {
		return mapped
	}
	return fmt.Errorf("%w: an exec broke off: %w", workspaces.ErrUnavailable, err)
}

// Alive says whether the pod runs, and why not.
func (t *transport) Alive(ctx context.Context) error {
	pod, err := t.provider.pods().Get(ctx, t.name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return fmt.Errorf("%w: the pod was deleted", workspaces.ErrGone)
	case err != nil:
		return mapped(err)
	case pod.UID != t.uid:
		return fmt.Errorf("%w: the pod was deleted and another took its name", workspaces.ErrGone)
	}
	if why := ending(pod); why != "" {
		return fmt.Errorf("%w: %s", workspaces.ErrGone, why)
	}
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodReady && condition.Status != corev1.ConditionTrue && condition.Reason == "NodeStatusUnknown" {
			return fmt.Errorf("%w: the pod's node %s does not answer", workspaces.ErrUnavailable, pod.Spec.NodeName)
		}
	}
	return nil
}

// ending says how a pod has ended, or is about to; empty: it has not.
func ending(pod *corev1.Pod) string {
	var how []string
	if reason := pod.Status.Reason; reason != "" {
		how = append(how, strings.TrimSpace(reason+": "+pod.Status.Message))
	}
	for _, container := range pod.Status.ContainerStatuses {
		if ended := container.State.Terminated; ended != nil {
			how = append(how, fmt.Sprintf("its container ended (%s, exit code %d)", ended.Reason, ended.ExitCode))
		}
	}
	switch {
	case pod.DeletionTimestamp != nil:
		return strings.Join(append([]string{"the pod is being deleted"}, how...), "; ")
	case pod.Status.Phase == corev1.PodSucceeded && pod.Status.Reason == "":
		return "the pod ended at its expiry"
	case pod.Status.Phase == corev1.PodSucceeded, pod.Status.Phase == corev1.PodFailed:
		return "the pod ended: " + strings.Join(how, "; ")
	case len(how) > 0 && pod.Status.Phase == corev1.PodRunning && pod.Status.Reason == "":
		return "the pod ends: " + strings.Join(how, "; ")
	}
	return ""
}

// Remove deletes the pod. One that is not there is deleted, and so is one whose name is another's now. It returns when the node
// says that nothing of it runs any more: with no grace at all the API would forget the pod while its commands go on.
func (t *transport) Remove(ctx context.Context) error {
	grace := int64(1) // the least that a node gives in any case
	for started := time.Now(); ; {
		_, err := retry(ctx, func() (struct{}, error) {
			return struct{}{}, t.provider.pods().Delete(ctx, t.name, metav1.DeleteOptions{
				GracePeriodSeconds: &grace, Preconditions: &metav1.Preconditions{UID: &t.uid},
			})
		})
		switch {
		case apierrors.IsNotFound(err), apierrors.IsConflict(err):
			return nil
		case err != nil:
			return err
		}
		for wait := podPoll; ; {
			pod, err := retry(ctx, func() (*corev1.Pod, error) { return t.provider.pods().Get(ctx, t.name, metav1.GetOptions{}) })
			switch {
			case apierrors.IsNotFound(err), err == nil && pod.UID != t.uid:
				return nil
			case err != nil:
				return err
			}
			if time.Since(started) > nodeWait && grace > 0 {
				grace = 0
				break
			}
			select {
			case <-time.After(wait):
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
}

const (
	podPoll = 200 * time.Millisecond

	// nodeWait is how long a node may take to end a pod, before the API is told to forget it.
	nodeWait = 15 * time.Second
)
