package main

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/carrel-dev/carrel/providers/docker"
	"github.com/carrel-dev/carrel/providers/local"
	"github.com/carrel-dev/carrel/workspaces"
)

func providerNames() []string { return []string{"local", "docker"} }

// A place is where workspaces live.
type place struct {
	provider  workspaces.Provider
	hostFetch *workspaces.HostFetch // nil: the workspace itself fetches
	end       func() error
}

// newPlace returns the one that the flags name. What it keeps on this host is below scratch.
func newPlace(c config, scratch string) (place, error) {
	switch c.provider {
	case "local":
		p, err := local.New(local.Options{Root: filepath.Join(scratch, "workspaces")})
		return place{provider: p, end: func() error { return nil }}, err
	case "docker":
		p, err := docker.New(docker.Options{Network: c.network})
		if err != nil {
			return place{}, err
		}
		return place{provider: p, hostFetch: &workspaces.HostFetch{CacheDir: filepath.Join(scratch, "fetched")}, end: p.Close}, nil
	}
	return place{}, fmt.Errorf("no provider %q; there are %s", c.provider, strings.Join(providerNames(), ", "))
}
