package docker

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/mount"
	"github.com/docker/docker/api/types/system"

	"github.com/carrel-dev/carrel/workspaces"
)

// Where things are in a container.
const (
	home  = "/home/sandbox"
	cache = "/cache"
)

// keeper is the main process. It is process 1, so nothing inside can kill it; it ignores SIGCHLD, so the kernel reaps what is
// left to it; and it ends at the workspace's expiry, given as seconds since the epoch: a start that
// comes late runs no longer. In an image whose env cannot do that it runs until the self-test has refused the image.
var keeper = []string{"sh", "-c", `
left=$(($1 - $(date +%s)))
env --ignore-signal=CHLD true 2>/dev/null || exec sleep "$left"
exec env --ignore-signal=CHLD sleep "$left"`, "carrel-keeper"}

// environment is what every command starts with, before the image's own PATH and whatever else is not set here.
func (p *Provider) environment(o workspaces.CreateOptions) map[string]string {
	env := map[string]string{
		"HOME":                home,
		"CI":                  "true",
		"GIT_TERMINAL_PROMPT": "0",
		"GIT_CONFIG_COUNT":    "1",
		"GIT_CONFIG_KEY_0":    "safe.directory",
		"GIT_CONFIG_VALUE_0":  "*",
		"XDG_CACHE_HOME":      cache + "/xdg",
		"npm_config_cache":    cache + "/npm",
		"PIP_CACHE_DIR":       cache + "/pip",
		"GOMODCACHE":          cache + "/go-mod",
		"GOCACHE":             cache + "/go-build",
		"COMPOSER_CACHE_DIR":  cache + "/composer",
	}
	maps.Copy(env, p.settings.Env)
	maps.Copy(env, o.Env)
	env["WORKSPACE"] = workspaces.Root // what makes a workspace work, no layer takes away
	return env
}

// capabilities are what the toolchain profile has.
var capabilities = []string{"CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "SETUID", "SETGID", "KILL"}

func (p *Provider) user() string {
	return strconv.Itoa(p.settings.uid) + ":" + strconv.Itoa(p.settings.gid)
}

// spec is the container of a workspace.
func (p *Provider) spec(o workspaces.CreateOptions, image string, limits workspaces.Limits, labels map[string]string, expires time.Time) (*container.Config, *container.HostConfig, error) {
	cpu, err := limits.CPUMillis()
	if err != nil {
		return nil, nil, err
	}
	memory, err := limits.MemoryBytes()
	if err != nil {
		return nil, nil, err
	}
	var env []string
	for name, value := range p.environment(o) {
		env = append(env, name+"="+value)
	}
	slices.Sort(env)
	config := &container.Config{
		Image:       image,
		User:        p.user(),
		Env:         env,
		Entrypoint:  keeper[:1],
		Cmd:         append(slices.Clone(keeper[1:]), strconv.FormatInt(expires.Add(time.Second-1).Unix(), 10)), // never too early
		WorkingDir:  workspaces.Root,
		Labels:      labels,
		Healthcheck: &container.HealthConfig{Test: []string{"NONE"}},
	}
	host := &container.HostConfig{
		NetworkMode:    container.NetworkMode(p.settings.Network),
		Runtime:        p.settings.Runtime,
		ReadonlyRootfs: p.settings.readOnly,
		CapDrop:        []string{"ALL"},
		SecurityOpt:    []string{"no-new-privileges"},
		IpcMode:        container.IPCModePrivate,
		LogConfig:      container.LogConfig{Type: "none"},
		Tmpfs:          map[string]string{"/tmp": "rw,exec,nosuid,nodev,mode=1777,size=" + strconv.FormatInt(p.settings.tmpBytes, 10)},
		Resources: container.Resources{
			NanoCPUs:   cpu * 1_000_000,
			Memory:     memory,
			MemorySwap: memory, // none
			PidsLimit:  &limits.PIDs,
		},
	}
	if p.settings.Profile == Toolchain {
		host.CapAdd = capabilities
	}
	for _, target := range []string{workspaces.Root, home, cache} {
		m := mount.Mount{Type: mount.TypeVolume, Target: target, VolumeOptions: &mount.VolumeOptions{NoCopy: true, Labels: labels}}
		if target == cache && p.settings.CacheVolume != "" {
			m = mount.Mount{Type: mount.TypeVolume, Source: p.settings.CacheVolume, Target: target}
		}
		host.Mounts = append(host.Mounts, m)
	}
	return config, host, nil
}

// enforceable refuses a limit that was explicitly given and that the engine cannot enforce. Defaults it cannot
// enforce are left out.
func enforceable(given, limits workspaces.Limits, engine system.Info) (workspaces.Limits, error) {
	refuse := func(what string) (workspaces.Limits, error) {
		return limits, fmt.Errorf("%w: this Docker engine cannot enforce a %s limit", workspaces.ErrUnsupported, what)
	}
	if given.Storage != "" {
		return refuse("storage")
	}
	if !engine.CPUCfsQuota {
		if given.CPU != "" {
			return refuse("cpu")
		}
		limits.CPU = ""
	}
	if !engine.MemoryLimit {
		if given.Memory != "" {
			return refuse("memory")
		}
		limits.Memory = ""
	}
	if !engine.PidsLimit {
		if given.PIDs != 0 {
			return refuse("pids")
		}
		limits.PIDs = 0
	}
	return limits, nil
}

// engine asks, once, what the engine can do. It comes before every other request: the client agrees with the engine on an API
// version on its first one, which it does not do well at once in two goroutines, nor say why it could not.
func (p *Provider) engine(ctx context.Context) (system.Info, error) {
	ctx, cancel := context.WithTimeout(ctx, p.settings.StartTimeout)
	defer cancel()
	select {
	case p.asking <- struct{}{}:
		defer func() { <-p.asking }()
	case <-ctx.Done():
		return system.Info{}, ctx.Err()
	}
	if p.engineInfo == nil {
		if _, err := p.client.Ping(ctx); err != nil {
			return system.Info{}, mapped(err)
		}
		info, err := p.client.Info(ctx)
		if err != nil {
			return system.Info{}, mapped(err)
		}
		p.engineInfo = &info
	}
	return *p.engineInfo, nil
}

// image is what a workspace runs in.
func (p *Provider) image(o workspaces.CreateOptions) string { return cmp.Or(o.Image, p.settings.Image) }
