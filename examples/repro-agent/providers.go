package main

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/carrel-dev/carrel/providers/local"
	"github.com/carrel-dev/carrel/workspaces"
)

func providerNames() []string { return []string{"local"} }

// newProvider returns the provider that the flags name. What it keeps on this host is below scratch.
func newProvider(c config, scratch string) (workspaces.Provider, error) {
	if c.provider == "local" {
		return local.New(local.Options{Root: filepath.Join(scratch, "workspaces")})
	}
	return nil, fmt.Errorf("no provider %q; there are %s", c.provider, strings.Join(providerNames(), ", "))
}
