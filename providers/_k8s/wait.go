package k8s

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/carrel-dev/carrel/workspaces"
)

// fatal are the reasons for which a container waits that do not pass by themselves. ErrImagePull is not one: a registry may fail
// once; ImagePullBackOff is that it has failed again.
var fatal = []string{
	"ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "ImageInspectError", "RegistryUnavailable",
	"CreateContainerConfigError", "CreateContainerError", "RunContainerError", "CrashLoopBackOff",
}

// await waits until the pod runs, and returns it as it is then.
func (p *Provider) await(ctx context.Context, pod *corev1.Pod) (*corev1.Pod, error) {
	for {
		ready, err := started(pod)
		if err != nil {
			return nil, fmt.Errorf("%w%s", err, p.events(ctx, pod))
		}
		if ready {
			return pod, nil
		}
		if ctx.Err() != nil {
			if context.Cause(ctx) == errStart {
				return nil, fmt.Errorf("%w: the pod did not start within %s: %s%s", workspaces.ErrUnavailable, p.settings.StartTimeout, waiting(pod), p.events(ctx, pod))
			}
			return nil, ctx.Err()
		}
		if pod, err = p.next(ctx, pod); err != nil && ctx.Err() == nil {
			return nil, err
		}
	}
}

// next returns the pod's next state, or the same when ctx ends.
func (p *Provider) next(ctx context.Context, pod *corev1.Pod) (*corev1.Pod, error) {
	gone := fmt.Errorf("%w: the pod was deleted while it started", workspaces.ErrGone)
	watch, err := p.pods().Watch(ctx, metav1.ListOptions{
		FieldSelector:   fields.OneTermEqualSelector(metav1.ObjectNameField, pod.Name).String(),
		ResourceVersion: pod.ResourceVersion,
	})
	if err == nil {
		defer watch.Stop()
		for event := range watch.ResultChan() {
			changed, ok := event.Object.(*corev1.Pod)
			if !ok {
				break // the watch has ended, or is too old
			}
			if changed.UID != pod.UID || event.Type == "DELETED" {
				return pod, gone
			}
			if event.Type == "MODIFIED" {
				if done, err := started(changed); done || err != nil || ctx.Err() != nil {
					return changed, nil
				}
				pod = changed
			}
		}
	} else if !transient(err) && ctx.Err() == nil {
		return pod, err
	}
	select { // and see for ourselves
	case <-time.After(podPoll):
	case <-ctx.Done():
		return pod, nil
	}
	there, err := retry(ctx, func() (*corev1.Pod, error) { return p.pods().Get(ctx, pod.Name, metav1.GetOptions{}) })
	switch {
	case apierrors.IsNotFound(err), err == nil && there.UID != pod.UID:
		return pod, gone
	case err != nil:
		return pod, err
	}
	return there, nil
}

// started says whether the container runs, or why it never will.
func started(pod *corev1.Pod) (bool, error) {
	if why := ending(pod); why != "" {
		return false, fmt.Errorf("%w: %s", workspaces.ErrGone, why)
	}
	for _, container := range pod.Status.ContainerStatuses {
		if container.State.Running != nil {
			return true, nil
		}
		if w := container.State.Waiting; w != nil && slices.Contains(fatal, w.Reason) {
			return false, fmt.Errorf("the container does not start: %s: %s", w.Reason, w.Message)
		}
	}
	return false, nil
}

// waiting says what a pod that has not started waits for.
func waiting(pod *corev1.Pod) string {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodScheduled && condition.Status != corev1.ConditionTrue {
			return strings.TrimSpace(condition.Reason + ": " + condition.Message)
		}
	}
	for _, container := range pod.Status.ContainerStatuses {
		if w := container.State.Waiting; w != nil {
			return strings.TrimSpace(w.Reason + ": " + w.Message)
		}
	}
	return "phase " + string(pod.Status.Phase)
}

const eventsMax = 5

// events is what the cluster tells of a pod, for an error; nothing where it may not be asked.
func (p *Provider) events(ctx context.Context, pod *corev1.Pod) string {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), workspaces.ProbeTimeout)
	defer cancel()
	all, err := p.client.CoreV1().Events(p.settings.Namespace).List(ctx, metav1.ListOptions{
		FieldSelector: fields.Set{"involvedObject.uid": string(pod.UID), "type": corev1.EventTypeWarning}.String(),
	})
	if err != nil {
		return ""
	}
	said := ""
	for _, event := range all.Items[max(0, len(all.Items)-eventsMax):] {
		said += fmt.Sprintf("; %s: %.300s", event.Reason, event.Message)
	}
	return said
}
