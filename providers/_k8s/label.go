package k8s

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/carrel-dev/carrel/workspaces"
)

// Labels by which any process of the deployment finds pods, and annotations with what no label can hold.
const (
	labelPrefix = "carrel.dev/"

	labelManagedBy     = "app.kubernetes.io/managed-by"
	labelComponent     = labelPrefix + "component"
	labelDeployment    = labelPrefix + "deployment"
	labelRun           = labelPrefix + "run"
	labelWorkspace     = labelPrefix + "workspace"
	labelRepositoryKey = labelPrefix + "repository-key"

	noteDeployment = labelPrefix + "deployment"
	noteRun        = labelPrefix + "run"
	noteRepository = labelPrefix + "repository"
	noteRef        = labelPrefix + "ref"
	noteCommit     = labelPrefix + "commit"
	noteImage      = labelPrefix + "image"
	noteCreatedAt  = labelPrefix + "created-at"
	noteExpiresAt  = labelPrefix + "expires-at"

	managedBy = "carrel"
	component = "workspace"
)

// labelValue is a value as a label can hold it: itself, or its hash.
func labelValue(value string) string {
	if len(validation.IsValidLabelValue(value)) == 0 {
		return value
	}
	sum := sha256.Sum256([]byte(value))
	return "sha256-" + hex.EncodeToString(sum[:20])
}

// meta is that of a new pod. A commit that is not known is read from the workspace by who finds it.
func (p *Provider) meta(id string, o workspaces.CreateOptions, image string, created, expires time.Time) metav1.ObjectMeta {
	all := map[string]string{
		labelManagedBy:     managedBy,
		labelComponent:     component,
		labelDeployment:    labelValue(o.Deployment),
		labelRun:           labelValue(o.RunID),
		labelWorkspace:     id,
		labelRepositoryKey: o.RepositoryKey,
	}
	maps.Copy(all, p.settings.Labels)
	return metav1.ObjectMeta{
		Name:      podName(o),
		Namespace: p.settings.Namespace,
		Labels:    all,
		Annotations: map[string]string{
			noteDeployment: o.Deployment,
			noteRun:        o.RunID,
			noteRepository: o.Repository,
			noteRef:        o.Ref,
			noteCommit:     o.Commit,
			noteImage:      image,
			noteCreatedAt:  created.UTC().Format(time.RFC3339Nano),
			noteExpiresAt:  expires.UTC().Format(time.RFC3339Nano),
		},
	}
}

// ours selects what a deployment made, and of one run where that is not empty.
func ours(deployment, runID string) metav1.ListOptions {
	selection := labels.Set{labelManagedBy: managedBy, labelComponent: component, labelDeployment: labelValue(deployment)}
	if runID != "" {
		selection[labelRun] = labelValue(runID)
	}
	return metav1.ListOptions{LabelSelector: selection.String()}
}

// isOurs compares what the labels may only hold a hash of.
func isOurs(pod *corev1.Pod, deployment string) bool {
	return pod.Labels[labelManagedBy] == managedBy && pod.Labels[labelComponent] == component && pod.Annotations[noteDeployment] == deployment
}

// info is what a pod says. expires is zero where that cannot be read.
func (p *Provider) info(pod *corev1.Pod) workspaces.Info {
	created, _ := time.Parse(time.RFC3339Nano, pod.Annotations[noteCreatedAt])
	expires, _ := time.Parse(time.RFC3339Nano, pod.Annotations[noteExpiresAt])
	return workspaces.Info{
		RunID:      pod.Annotations[noteRun],
		Provider:   p.Name(),
		Image:      pod.Annotations[noteImage],
		Repository: pod.Annotations[noteRepository],
		Ref:        pod.Annotations[noteRef],
		Commit:     pod.Annotations[noteCommit],
		CreatedAt:  created,
		ExpiresAt:  expires,
		Resource:   map[string]string{"k8s.namespace.name": pod.Namespace, "k8s.pod.name": pod.Name, "k8s.pod.uid": string(pod.UID)},
	}
}
