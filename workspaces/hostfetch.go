package workspaces

import (
	"context"
	"fmt"
)

// A hostFetcher fetches repositories on the host. It is not there yet: newHostFetcher refuses,
// so that nobody believes a repository is fetched on the host when it is not.
type hostFetcher struct{}

type fetchedCommit struct{ Commit, Branch, Tag string }

func newHostFetcher(HostFetch) (*hostFetcher, error) {
	return nil, fmt.Errorf("%w: HostFetch is not implemented yet", ErrInvalidConfig)
}

func (f *hostFetcher) fetch(context.Context, string, string, string, bool) (*fetchedCommit, error) {
	return nil, ErrUnsupported
}

func (f *hostFetcher) inject(context.Context, Workspace, *fetchedCommit) error {
	return ErrUnsupported
}

func (c *fetchedCommit) close() {}
