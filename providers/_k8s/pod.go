package k8s

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/carrel-dev/carrel/workspaces"
)

const (
	containerName = "workspace"

	// Where things are in the container.
	home  = "/home/sandbox"
	cache = "/cache"

	// deadlineSlack is how long after its expiry the cluster ends a pod whose main process has not ended by itself.
	deadlineSlack = time.Minute
)

// keeper is the main process. It is process 1 of its container, so nothing inside can kill it; it ignores SIGCHLD, so the
// kernel reaps what is left to it; and it ends at the workspace's expiry, given as seconds since the epoch: a start that
// comes late runs no longer.
const keeper = `
left=$(($1 - $(date +%s)))
env --ignore-signal=CHLD true 2>/dev/null || exec sleep "$left"
exec env --ignore-signal=CHLD sleep "$left"`

// capabilities are what the toolchain profile has.
var capabilities = []corev1.Capability{"CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "SETUID", "SETGID", "KILL"}

// environment is what every command starts with, before the image's own PATH and whatever else is not set here.
func (p *Provider) environment(o workspaces.CreateOptions) []corev1.EnvVar {
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
	var all []corev1.EnvVar
	for _, name := range slices.Sorted(maps.Keys(env)) {
		all = append(all, corev1.EnvVar{Name: name, Value: literal(env[name])})
	}
	return all
}

// literal keeps Kubernetes from expanding $(NAME).
func literal(value string) string {
	var escaped []byte
	for i := range len(value) {
		if escaped = append(escaped, value[i]); value[i] == '$' {
			escaped = append(escaped, '$')
		}
	}
	return string(escaped)
}

// spec is the pod of a workspace.
func (p *Provider) spec(id string, o workspaces.CreateOptions, image string, limits workspaces.Limits, created time.Time) (*corev1.Pod, error) {
	expires := created.Add(limits.Lifetime)
	resources, storage, err := p.resources(limits)
	if err != nil {
		return nil, err
	}
	s := p.settings
	no := false
	deadline := int64((limits.Lifetime + deadlineSlack) / time.Second)
	grace := int64(1)
	match := corev1.FSGroupChangeOnRootMismatch
	root := s.uid == 0
	notRoot := !root
	security := &corev1.SecurityContext{
		AllowPrivilegeEscalation: &no,
		Privileged:               &no,
		ReadOnlyRootFilesystem:   &s.readOnly,
		Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
	}
	if s.Profile == Toolchain {
		security.Capabilities.Add = capabilities
	}
	disk := func() corev1.VolumeSource {
		return corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{SizeLimit: storage}}
	}
	cacheVolume := disk()
	if s.CacheClaim != "" {
		cacheVolume = corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: s.CacheClaim}}
	}
	pod := &corev1.Pod{
		ObjectMeta: p.meta(id, o, image, created, expires),
		Spec: corev1.PodSpec{
			RestartPolicy:                 corev1.RestartPolicyNever,
			ActiveDeadlineSeconds:         &deadline,
			TerminationGracePeriodSeconds: &grace,
			AutomountServiceAccountToken:  &no,
			EnableServiceLinks:            &no,
			NodeSelector:                  s.NodeSelector,
			Tolerations:                   s.Tolerations,
			SecurityContext: &corev1.PodSecurityContext{
				RunAsUser: &s.uid, RunAsGroup: &s.gid, RunAsNonRoot: &notRoot,
				FSGroup: &s.gid, FSGroupChangePolicy: &match,
				SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			},
			Containers: []corev1.Container{{
				Name:            containerName,
				Image:           image,
				ImagePullPolicy: s.Pull,
				Command:         []string{"sh", "-c", literal(keeper), "carrel-keeper", strconv.FormatInt(expires.Add(time.Second-1).Unix(), 10)}, // never too early
				WorkingDir:      workspaces.Root,
				Env:             p.environment(o),
				Resources:       resources,
				SecurityContext: security,
				VolumeMounts: []corev1.VolumeMount{
					{Name: "workspace", MountPath: workspaces.Root},
					{Name: "home", MountPath: home},
					{Name: "cache", MountPath: cache},
					{Name: "tmp", MountPath: "/tmp"},
				},
				TerminationMessagePolicy: corev1.TerminationMessageReadFile,
			}},
			Volumes: []corev1.Volume{
				{Name: "workspace", VolumeSource: disk()},
				{Name: "home", VolumeSource: disk()},
				{Name: "cache", VolumeSource: cacheVolume},
				{Name: "tmp", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory, SizeLimit: &s.tmp}}},
			},
		},
	}
	if root {
		pod.Spec.SecurityContext.RunAsNonRoot = nil
	}
	for _, name := range s.PullSecrets {
		pod.Spec.ImagePullSecrets = append(pod.Spec.ImagePullSecrets, corev1.LocalObjectReference{Name: name})
	}
	if s.RuntimeClass != "" {
		pod.Spec.RuntimeClassName = &s.RuntimeClass
	}
	return pod, nil
}

// resources are the limits, what the pod is scheduled by, and the bound of its volumes.
func (p *Provider) resources(limits workspaces.Limits) (all corev1.ResourceRequirements, storage *resource.Quantity, err error) {
	all.Limits, all.Requests = corev1.ResourceList{}, corev1.ResourceList{}
	for name, value := range map[corev1.ResourceName]struct{ limit, request string }{
		corev1.ResourceCPU:              {limits.CPU, p.settings.Requests.CPU},
		corev1.ResourceMemory:           {limits.Memory, p.settings.Requests.Memory},
		corev1.ResourceEphemeralStorage: {limits.Storage, p.settings.Requests.Storage},
	} {
		limit, err := resource.ParseQuantity(value.limit)
		if err != nil {
			return all, nil, fmt.Errorf("%w: %s limit %q: %w", workspaces.ErrInvalidInput, name, value.limit, err)
		}
		request, err := resource.ParseQuantity(cmp.Or(value.request, value.limit))
		if err != nil {
			return all, nil, fmt.Errorf("%w: %s request %q: %w", workspaces.ErrInvalidInput, name, value.request, err)
		}
		if request.Cmp(limit) > 0 {
			request = limit
		}
		all.Limits[name], all.Requests[name] = limit, request
		if name == corev1.ResourceEphemeralStorage {
			storage = &limit
		}
	}
	return all, storage, nil
}

// podName is the name of a run's pod for a repository: of two processes that make it at the same time, one meets a
// conflict and attaches.
func podName(o workspaces.CreateOptions) string { return "carrel-ws-" + o.Name }
