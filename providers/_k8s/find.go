package k8s

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/carrel-dev/carrel/workspaces"
)

// Find returns the running pods of a run.
func (p *Provider) Find(ctx context.Context, deployment, runID string) ([]workspaces.Workspace, error) {
	all, err := retry(ctx, func() (*corev1.PodList, error) { return p.pods().List(ctx, ours(deployment, runID)) })
	if err != nil {
		return nil, err
	}
	var found []workspaces.Workspace
	for i := range all.Items {
		pod := &all.Items[i]
		info := p.info(pod)
		if !isOurs(pod, deployment) || info.RunID != runID || pod.Status.Phase != corev1.PodRunning || ending(pod) != "" {
			continue
		}
		if info.ExpiresAt.IsZero() || !p.settings.Now().Before(info.ExpiresAt) {
			continue // the collection's
		}
		found = append(found, p.workspace(pod))
	}
	return found, nil
}

// Collect deletes expired and ended pods, and those of settled runs.
func (p *Provider) Collect(ctx context.Context, options workspaces.CollectOptions) (int, error) {
	all, err := retry(ctx, func() (*corev1.PodList, error) { return p.pods().List(ctx, ours(options.Deployment, "")) })
	if err != nil {
		return 0, err
	}
	removed := 0
	var failures []error
	for i := range all.Items {
		pod := &all.Items[i]
		info := p.info(pod)
		if !isOurs(pod, options.Deployment) || info.ExpiresAt.IsZero() {
			continue // whose it is or how long it was to live cannot be told
		}
		expired := !options.Now.Before(info.ExpiresAt)
		ended := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
		if !expired && !ended && options.Settled(ctx, info.RunID) != workspaces.RunSettled {
			continue
		}
		if err := (&transport{provider: p, name: pod.Name, uid: pod.UID}).Remove(ctx); err != nil {
			failures = append(failures, fmt.Errorf("pod %s: %w", pod.Name, err))
			continue
		}
		removed++
	}
	if len(failures) > 0 {
		return removed, fmt.Errorf("%d could not be removed: %w", len(failures), errors.Join(failures...))
	}
	return removed, nil
}
