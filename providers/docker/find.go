package docker

import (
	"context"
	"errors"
	"fmt"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/volume"

	"github.com/carrel-dev/carrel/workspaces"
)

// Find returns the running containers of a run.
func (p *Provider) Find(ctx context.Context, deployment, runID string) ([]workspaces.Workspace, error) {
	all, err := p.list(ctx, container.ListOptions{Filters: ours(deployment, runID)})
	if err != nil {
		return nil, err
	}
	var found []workspaces.Workspace
	for _, c := range all {
		if !isOurs(c.Labels, deployment) || c.Labels[labelRun] != runID {
			continue
		}
		info := p.info(c.Labels, c.ID)
		if info.ExpiresAt.IsZero() || !p.settings.Now().Before(info.ExpiresAt) {
			continue // the collection's
		}
		found = append(found, p.workspace(c.Labels[labelWorkspace], info))
	}
	return found, nil
}

func (p *Provider) list(ctx context.Context, options container.ListOptions) ([]container.Summary, error) {
	if _, err := p.engine(ctx); err != nil {
		return nil, p.silent(ctx, err)
	}
	asking, cancel := context.WithTimeout(ctx, p.settings.StartTimeout)
	defer cancel()
	all, err := p.client.ContainerList(asking, options)
	return all, p.silent(ctx, mapped(err))
}

// Collect removes expired and ended containers, those of settled runs, and volumes whose container is gone.
func (p *Provider) Collect(ctx context.Context, options workspaces.CollectOptions) (int, error) {
	all, err := p.list(ctx, container.ListOptions{All: true, Filters: ours(options.Deployment, "")})
	if err != nil {
		return 0, err
	}
	removed := 0
	var failures []error
	for _, c := range all {
		if !isOurs(c.Labels, options.Deployment) {
			continue
		}
		info := p.info(c.Labels, c.ID)
		if info.ExpiresAt.IsZero() {
			continue // whose it is and how long it was to live cannot be told
		}
		expired := !options.Now.Before(info.ExpiresAt)
		ended := c.State == container.StateExited || c.State == container.StateDead
		if !expired && !ended && options.Settled(ctx, info.RunID) != workspaces.RunSettled {
			continue
		}
		if err := (&transport{client: p.client, id: c.ID}).Remove(ctx); err != nil {
			failures = append(failures, fmt.Errorf("container %.12s: %w", c.ID, err))
			continue
		}
		removed++
	}
	failures = append(failures, p.collectVolumes(ctx, options)...)
	if len(failures) > 0 {
		return removed, fmt.Errorf("%d could not be removed: %w", len(failures), errors.Join(failures...))
	}
	return removed, nil
}

// collectVolumes removes expired volumes that no container uses, which an engine that died in between leaves.
func (p *Provider) collectVolumes(ctx context.Context, options workspaces.CollectOptions) (failures []error) {
	selection := ours(options.Deployment, "")
	selection.Add("dangling", "true")
	all, err := p.client.VolumeList(ctx, volume.ListOptions{Filters: selection})
	if err != nil {
		return []error{mapped(err)}
	}
	for _, v := range all.Volumes {
		expires := p.info(v.Labels, "").ExpiresAt
		if !isOurs(v.Labels, options.Deployment) || expires.IsZero() || options.Now.Before(expires) {
			continue
		}
		if err := p.client.VolumeRemove(ctx, v.Name, false); err != nil {
			failures = append(failures, fmt.Errorf("volume %.20s: %w", v.Name, mapped(err)))
		}
	}
	return failures
}
