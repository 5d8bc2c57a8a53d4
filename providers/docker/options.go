package docker

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"strings"
	"time"

	"github.com/docker/docker/client"

	"github.com/carrel-dev/carrel/workspaces"
)

// DefaultImage is the image of a workspace where nobody names one: an official one with git and build tools.
const DefaultImage = "buildpack-deps:bookworm"

// A Profile is what a container may do.
type Profile string

// The profiles.
const (
	// Hardened is a user that is not root, a read-only root file system and no capabilities.
	Hardened Profile = "hardened"
	// Toolchain is root inside the container, with a writable root file system and what package managers need: CHOWN,
	// DAC_OVERRIDE, FOWNER, FSETID, SETUID, SETGID and KILL.
	Toolchain Profile = "toolchain"
)

// A PullPolicy says when an image is pulled.
type PullPolicy string

// The pull policies.
const (
	PullIfNotPresent PullPolicy = "if-not-present"
	PullAlways       PullPolicy = "always"
	PullNever        PullPolicy = "never"
)

// Options configure a provider. The zero value of each field is a working default.
type Options struct {
	// Client speaks to the engine. The caller closes it, after the manager. Nil: one is made from DOCKER_HOST,
	// DOCKER_TLS_VERIFY and DOCKER_CERT_PATH; Provider.Close closes it.
	Client client.APIClient

	// Image is used where neither the manager nor the call names one. Empty: DefaultImage.
	Image string
	// Pull says when. Empty: PullIfNotPresent.
	Pull PullPolicy
	// RegistryAuth is the encoded X-Registry-Auth header of a pull. Empty: none.
	RegistryAuth string

	// Profile is the preset that the fields below may change. Empty: Hardened.
	Profile Profile
	// UID and GID of commands. Nil: the profile's.
	UID, GID *int
	// ReadOnlyRoot. Nil: the profile's.
	ReadOnlyRoot *bool
	// TmpSize bounds /tmp, which is memory: a Kubernetes quantity. Empty: 1Gi.
	TmpSize string

	// Network is bridge, none or the name of a network of the engine. Empty: bridge.
	Network string
	// Runtime is an OCI runtime the engine knows, such as runsc. Empty: the engine's default.
	Runtime string
	// CacheVolume is a volume to share as /cache. What one workspace writes there, another one may run. Empty: each
	// workspace has its own.
	CacheVolume string

	// Env is for every workspace; the manager's and the call's win.
	Env map[string]string
	// Limits are for every workspace; the manager's and the call's win.
	Limits workspaces.Limits
	// Labels are put on containers besides carrel's own, whose names are refused.
	Labels map[string]string

	// StartTimeout bounds the start of a container, a pull not included, and how long an engine may take to answer what
	// comes before. Zero: 2 minutes.
	StartTimeout time.Duration

	// Now is the clock that expiry is told by. Nil: time.Now.
	Now func() time.Time
}

const startTimeout = 2 * time.Minute

// settings are options that were checked, with defaults in place.
type settings struct {
	Options
	uid, gid int
	readOnly bool
	tmpBytes int64
}

var (
	networkName = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9_.-]{0,127}$`)
	imageName   = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9._/:@-]{0,511}$`)
)

func (o Options) settings() (settings, error) {
	invalid := func(format string, args ...any) (settings, error) {
		return settings{}, fmt.Errorf("%w: docker: %s", workspaces.ErrInvalidConfig, fmt.Sprintf(format, args...))
	}
	o.Image = cmp.Or(o.Image, DefaultImage)
	o.Pull = cmp.Or(o.Pull, PullIfNotPresent)
	o.Profile = cmp.Or(o.Profile, Hardened)
	o.TmpSize = cmp.Or(o.TmpSize, "1Gi")
	o.Network = cmp.Or(o.Network, "bridge")
	o.StartTimeout = cmp.Or(o.StartTimeout, startTimeout)
	if o.Now == nil {
		o.Now = time.Now
	}
	s := settings{Options: o}
	switch o.Profile {
	case Hardened:
		s.uid, s.gid, s.readOnly = 1000, 1000, true
	case Toolchain:
	default:
		return invalid("no profile %q; there are %s and %s", o.Profile, Hardened, Toolchain)
	}
	switch o.Pull {
	case PullIfNotPresent, PullAlways, PullNever:
	default:
		return invalid("no pull policy %q; there are %s, %s and %s", o.Pull, PullIfNotPresent, PullAlways, PullNever)
	}
	for name, field := range map[string]struct{ given, target *int }{"UID": {o.UID, &s.uid}, "GID": {o.GID, &s.gid}} {
		if field.given == nil {
			continue
		}
		if *field.given < 0 || *field.given > 1<<31-2 {
			return invalid("%s %d is not 0 to 2147483646", name, *field.given)
		}
		*field.target = *field.given
	}
	if o.ReadOnlyRoot != nil {
		s.readOnly = *o.ReadOnlyRoot
	}
	if !imageName.MatchString(o.Image) {
		return invalid("%q is no image", o.Image)
	}
	if !networkName.MatchString(o.Network) || o.Network == "host" {
		return invalid("network %q is not bridge, none or the name of one", o.Network)
	}
	if o.Runtime != "" && !networkName.MatchString(o.Runtime) {
		return invalid("%q is no runtime", o.Runtime)
	}
	if o.CacheVolume != "" && !networkName.MatchString(o.CacheVolume) {
		return invalid("cache volume %q is not the name of a volume", o.CacheVolume)
	}
	if o.StartTimeout < 0 {
		return invalid("negative start timeout %s", o.StartTimeout)
	}
	for name := range o.Labels {
		if name == "" || strings.HasPrefix(name, labelPrefix) {
			return invalid("label %q is carrel's own to set", name)
		}
	}
	if err := workspaces.CheckEnv(o.Env); err != nil {
		return invalid("%v", err)
	}
	if err := o.Limits.Validate(); err != nil {
		return invalid("%v", err)
	}
	if o.Limits.Storage != "" {
		return invalid("a storage limit cannot be enforced: the engine cannot bound a volume")
	}
	tmp, err := workspaces.Limits{Memory: o.TmpSize}.MemoryBytes()
	if err != nil {
		return invalid("TmpSize: %v", err)
	}
	s.tmpBytes = tmp
	s.Env, s.Labels = maps.Clone(o.Env), maps.Clone(o.Labels)
	return s, nil
}
