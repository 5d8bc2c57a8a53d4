package workspaces

import (
	"context"
	"errors"
	"io"
	"os"
	"strings"
)

// injectScript takes a pack on its standard input. Where the parents of a commit are missing, .git/shallow
// comes first: index-pack --strict asks for them otherwise.
const injectScript = cleanEnvironment + checkoutFunctions + `
commit=$1 shallow=$2 tag=$3 object=$4 head=$5
export GIT_DIR=.git
step inject
[ -z "$shallow" ] || printf '%s\n' "$commit" >.git/shallow || exit
g index-pack --stdin --strict || exit
[ -z "$tag" ] || g update-ref "refs/tags/$tag" "$object" || exit
[ -z "$head" ] || g symbolic-ref refs/remotes/origin/HEAD "refs/remotes/origin/$head" || exit
printf 'commit %s\n' "$commit"
`

// inject writes a fetched commit into a workspace whose repository initRepository made: its objects,
// the tag it was fetched by, and what the remote's HEAD is. A commit that the cache turns out to lack objects of is fetched
// once more, which may change c.
func (f *hostFetcher) inject(ctx context.Context, ws Workspace, c *fetchedCommit) error {
	corrupt, err := f.stream(ctx, ws, c)
	if !corrupt {
		return err
	}
	if err := c.generation.spoil(); err != nil {
		return err
	}
	c.close()
	again, err := f.fetch(ctx, c.runID, c.url, c.ref)
	if err != nil {
		return err
	}
	*c = *again
	_, err = f.stream(ctx, ws, c)
	return err
}

// stream streams a commit from the cache into a workspace. corrupt says that it was the cache that failed.
func (f *hostFetcher) stream(ctx context.Context, ws Workspace, c *fetchedCommit) (corrupt bool, err error) {
	r, w, err := os.Pipe()
	if err != nil {
		return false, err
	}
	defer r.Close()
	packing, stop := context.WithCancel(ctx)
	packed := make(chan error, 1)
	go func() {
		err := f.git.run(packing, string(c.generation), nil, strings.NewReader(c.object+"\n"), w, "pack-objects", "--quiet", "--revs", "--stdout", "--delta-base-offset")
		packed <- errors.Join(err, w.Close())
	}()
	shallow, head := "", ""
	if c.shallow {
		shallow = "shallow"
	}
	if c.ref == "" {
		head = c.Branch
	}
	result, err := ws.Exec(ctx, Command{
		Args:    []string{"sh", "-c", injectScript, "carrel", c.Commit, shallow, c.Tag, c.object, head},
		Stdin:   struct{ io.Reader }{r}, // a plain reader: the pipe itself stays on the host
		Timeout: checkoutTimeout,
	})
	stop()
	packErr := <-packed
	var failure *gitFailure
	if err = checkoutFailure(result, err, c.url, c.ref); err != nil {
		corrupt = errors.As(packErr, &failure) && failure.code > 0
	}
	return corrupt, err
}
