package docker

import (
	"time"

	"github.com/docker/docker/api/types/filters"

	"github.com/carrel-dev/carrel/workspaces"
)

// Labels of a container and its volumes, by which any process of the deployment finds them.
const (
	labelPrefix = "carrel.dev/"

	labelManagedBy     = labelPrefix + "managed-by"
	labelComponent     = labelPrefix + "component"
	labelDeployment    = labelPrefix + "deployment"
	labelRun           = labelPrefix + "run"
	labelWorkspace     = labelPrefix + "workspace"
	labelRepositoryKey = labelPrefix + "repository-key"
	labelRepository    = labelPrefix + "repository"
	labelRef           = labelPrefix + "ref"
	labelCommit        = labelPrefix + "commit"
	labelImage         = labelPrefix + "image"
	labelCreatedAt     = labelPrefix + "created-at"
	labelExpiresAt     = labelPrefix + "expires-at"

	managedBy = "carrel"
	component = "workspace"
)

// labels are those of a new container. A commit that is not known is read from the workspace by who finds it.
func (p *Provider) labels(id string, o workspaces.CreateOptions, image string, created, expires time.Time) map[string]string {
	all := map[string]string{
		labelManagedBy:     managedBy,
		labelComponent:     component,
		labelDeployment:    o.Deployment,
		labelRun:           o.RunID,
		labelWorkspace:     id,
		labelRepositoryKey: o.RepositoryKey,
		labelRepository:    o.Repository,
		labelRef:           o.Ref,
		labelCommit:        o.Commit,
		labelImage:         image,
		labelCreatedAt:     created.UTC().Format(time.RFC3339Nano),
		labelExpiresAt:     expires.UTC().Format(time.RFC3339Nano),
	}
	for name, value := range p.settings.Labels {
		all[name] = value
	}
	return all
}

// ours selects what a deployment made, and of one run where that is not empty.
func ours(deployment, runID string) filters.Args {
	selection := filters.NewArgs(
		filters.Arg("label", labelManagedBy+"="+managedBy),
		filters.Arg("label", labelComponent+"="+component),
		filters.Arg("label", labelDeployment+"="+deployment),
	)
	if runID != "" {
		selection.Add("label", labelRun+"="+runID)
	}
	return selection
}

// isOurs says it again: an engine that knows no such filter must not make us remove what is another's.
func isOurs(labels map[string]string, deployment string) bool {
	return labels[labelManagedBy] == managedBy && labels[labelComponent] == component && labels[labelDeployment] == deployment
}

// info is what the labels of a container say. expires is zero where that cannot be read.
func (p *Provider) info(labels map[string]string, containerID string) workspaces.Info {
	created, _ := time.Parse(time.RFC3339Nano, labels[labelCreatedAt])
	expires, _ := time.Parse(time.RFC3339Nano, labels[labelExpiresAt])
	return workspaces.Info{
		RunID:      labels[labelRun],
		Provider:   p.Name(),
		Image:      labels[labelImage],
		Repository: labels[labelRepository],
		Ref:        labels[labelRef],
		Commit:     labels[labelCommit],
		CreatedAt:  created,
		ExpiresAt:  expires,
		Resource:   map[string]string{"container.id": containerID},
	}
}
