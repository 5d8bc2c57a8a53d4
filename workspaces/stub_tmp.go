package workspaces

// TEMPORARY, by the lead: the host fetch is being written in hostfetch.go; delete this file then.

import "context"

type hostFetcher struct{}
type fetchedCommit struct{ Commit, Branch, Tag string }

func newHostFetcher(options HostFetch) (*hostFetcher, error) { return nil, nil }
func (f *hostFetcher) fetch(ctx context.Context, runID, url, ref string, sharesHost bool) (*fetchedCommit, error) {
	panic("being written")
}
func (f *hostFetcher) inject(ctx context.Context, ws Workspace, fetched *fetchedCommit) error {
	panic("being written")
}
func (c *fetchedCommit) close() {}
