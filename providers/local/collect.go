//go:build linux || darwin

package local

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/carrel-dev/carrel/workspaces"
)

const collectBatch = 512

// Collect removes the folders of expired workspaces, with the processes in them, and
// those of settled runs whose process has ended. What a living process holds is its
// own until it expires, and so is what has no readable label of the deployment.
func (p *Provider) Collect(ctx context.Context, options workspaces.CollectOptions) (int, error) {
	if _, err := os.Stat(p.root); errors.Is(err, fs.ErrNotExist) {
		return 0, nil // no workspace was made yet
	}
	root, err := p.makeRoot()
	if err != nil {
		return 0, fmt.Errorf("collect: %w", err)
	}
	victims, err := collectable(ctx, root, options)
	if err != nil {
		return 0, fmt.Errorf("collect: %w", err)
	}
	if len(victims) == 0 {
		return 0, nil
	}
	collected, failed := 0, 0
	var first error
	// Processes that cannot be killed may keep their folder from being removed; then that fails.
	_ = killAll(disposeKillTime, func() []process {
		t, err := processes()
		if err != nil {
			return nil
		}
		return inhabitants(t, root, func(id string) bool {
			_, victim := slices.BinarySearch(victims, id)
			return victim
		})
	})
	for _, id := range victims {
		if err := ctx.Err(); err != nil {
			return collected, fmt.Errorf("collect: %w", err)
		}
		removed, err := removeFolder(root, id)
		if removed {
			collected++
		}
		if err != nil {
			failed++
			if first == nil {
				first = err
			}
		}
	}
	if failed > 0 {
		return collected, fmt.Errorf("collect: %d of %d workspaces could not be removed, the first: %w", failed, len(victims), first)
	}
	return collected, nil
}

// collectable returns the ids of the workspaces that are to go, sorted.
func collectable(ctx context.Context, root string, options workspaces.CollectOptions) ([]string, error) {
	dir, err := os.Open(root)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	var victims []string
	settled := make(map[string]bool)
	for {
		names, err := dir.Readdirnames(collectBatch)
		for _, name := range names {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			id, isLabel := strings.CutSuffix(name, labelSuffix)
			if !isLabel || !isID(id) {
				continue
			}
			// Whatever cannot be read keeps the folder.
			l, err := readLabel(root, id)
			if err != nil || l.Deployment != options.Deployment {
				continue
			}
			expires, err := time.Parse(time.RFC3339Nano, l.ExpiresAt)
			if err != nil {
				continue
			}
			if options.Now.Before(expires) {
				if held, err := living(root, id); held || err != nil {
					continue
				}
				if _, asked := settled[l.Run]; !asked {
					settled[l.Run] = options.Settled(ctx, l.Run) == workspaces.RunSettled
				}
				if !settled[l.Run] {
					continue
				}
			}
			victims = append(victims, id)
		}
		if errors.Is(err, io.EOF) {
			slices.Sort(victims)
			return victims, nil
		}
		if err != nil {
			return nil, err
		}
	}
}
