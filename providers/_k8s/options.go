package k8s

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"

	"github.com/carrel-dev/carrel/workspaces"
)

// DefaultImage is the image of a workspace where nobody names one: an official one with git and build tools.
const DefaultImage = "buildpack-deps:bookworm"

// A Profile is what a pod may do.
type Profile string

// The profiles.
const (
	// Hardened is a user that is not root, a read-only root file system and no capabilities. It passes Pod Security
	// restricted.
	Hardened Profile = "hardened"
	// Toolchain is root inside the container, with a writable root file system and what package managers need: CHOWN,
	// DAC_OVERRIDE, FOWNER, FSETID, SETUID, SETGID and KILL. It passes Pod Security baseline.
	Toolchain Profile = "toolchain"
)

// Options configure a provider. The zero value of each field is a working default.
type Options struct {
	// Config leads to the cluster; it is copied. Nil: that of the pod we run in, else what KUBECONFIG and ~/.kube/config say.
	// Its rate limit is not used: the API server has one of its own.
	Config *rest.Config
	// Namespace holds the pods. Empty: that of the configuration.
	Namespace string

	// Image is used where neither the manager nor the call names one. Empty: DefaultImage.
	Image string
	// Pull says when. Empty: corev1.PullIfNotPresent.
	Pull corev1.PullPolicy
	// PullSecrets are the names of secrets for the image's registry.
	PullSecrets []string

	// Profile is the preset that the fields below may change. Empty: Hardened.
	Profile Profile
	// UID and GID of commands. Nil: the profile's.
	UID, GID *int64
	// ReadOnlyRoot. Nil: the profile's.
	ReadOnlyRoot *bool
	// TmpSize bounds /tmp, which is memory: a Kubernetes quantity. Empty: 1Gi.
	TmpSize string

	// RuntimeClass is one of the cluster's, such as gvisor. Empty: the cluster's default.
	RuntimeClass string
	// CacheClaim is a ReadWriteMany claim to share as /cache. What one workspace writes there, another one may run. Empty: each
	// workspace has its own.
	CacheClaim string
	// NodeSelector and Tolerations choose nodes.
	NodeSelector map[string]string
	Tolerations  []corev1.Toleration

	// Env is for every workspace; the manager's and the call's win.
	Env map[string]string
	// Limits are for every workspace; the manager's and the call's win.
	Limits workspaces.Limits
	// Requests are what a pod is scheduled by: CPU, Memory and Storage. What is empty is the limit, and what is above the
	// limit is lowered to it.
	Requests workspaces.Limits
	// Labels are put on pods besides carrel's own, whose names are refused.
	Labels map[string]string

	// StartTimeout bounds the time until a pod runs, the pull of its image included. Zero: 2 minutes.
	StartTimeout time.Duration

	// Now is the clock that expiry is told by. Nil: time.Now.
	Now func() time.Time
}

const startTimeout = 2 * time.Minute

// settings are options that were checked, with defaults in place.
type settings struct {
	Options
	uid, gid int64
	readOnly bool
	tmp      resource.Quantity
}

func (o Options) settings() (settings, error) {
	invalid := func(format string, args ...any) (settings, error) {
		return settings{}, fmt.Errorf("%w: k8s: %s", workspaces.ErrInvalidConfig, fmt.Sprintf(format, args...))
	}
	o.Image = cmp.Or(o.Image, DefaultImage)
	o.Pull = cmp.Or(o.Pull, corev1.PullIfNotPresent)
	o.Profile = cmp.Or(o.Profile, Hardened)
	o.TmpSize = cmp.Or(o.TmpSize, "1Gi")
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
	case corev1.PullIfNotPresent, corev1.PullAlways, corev1.PullNever:
	default:
		return invalid("no pull policy %q", o.Pull)
	}
	for name, field := range map[string]struct{ given, target *int64 }{"UID": {o.UID, &s.uid}, "GID": {o.GID, &s.gid}} {
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
	for what, name := range map[string]string{"namespace": o.Namespace, "runtime class": o.RuntimeClass, "cache claim": o.CacheClaim} {
		if name != "" && len(validation.IsDNS1123Subdomain(name)) > 0 {
			return invalid("%s %q is no name", what, name)
		}
	}
	for _, name := range o.PullSecrets {
		if len(validation.IsDNS1123Subdomain(name)) > 0 {
			return invalid("pull secret %q is no name", name)
		}
	}
	if o.StartTimeout < 0 {
		return invalid("negative start timeout %s", o.StartTimeout)
	}
	for name, value := range o.Labels {
		if strings.HasPrefix(name, labelPrefix) || name == labelManagedBy {
			return invalid("label %q is carrel's own to set", name)
		}
		if wrong := append(validation.IsQualifiedName(name), validation.IsValidLabelValue(value)...); len(wrong) > 0 {
			return invalid("label %q: %s", name, strings.Join(wrong, "; "))
		}
	}
	if err := workspaces.CheckEnv(o.Env); err != nil {
		return invalid("%v", err)
	}
	for what, limits := range map[string]workspaces.Limits{"Limits": o.Limits, "Requests": o.Requests} {
		if err := limits.Validate(); err != nil {
			return invalid("%s: %v", what, err)
		}
		if limits.PIDs != 0 {
			return invalid("%s: a pod cannot bound its processes: set the kubelet's podPidsLimit", what)
		}
	}
	if o.Requests.Lifetime != 0 {
		return invalid("Requests: a lifetime is a limit")
	}
	if _, err := (workspaces.Limits{Memory: o.TmpSize}).MemoryBytes(); err != nil {
		return invalid("TmpSize: %v", err)
	}
	s.tmp = resource.MustParse(o.TmpSize)
	if o.Config != nil {
		s.Config = rest.CopyConfig(o.Config)
	}
	s.Env, s.Labels, s.NodeSelector = maps.Clone(o.Env), maps.Clone(o.Labels), maps.Clone(o.NodeSelector)
	s.PullSecrets, s.Tolerations = slices.Clone(o.PullSecrets), slices.Clone(o.Tolerations)
	return s, nil
}
