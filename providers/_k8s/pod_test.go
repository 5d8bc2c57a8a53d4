package k8s

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"

	"github.com/carrel-dev/carrel/workspaces"
)

// The pod is what SPEC 9 asks, and passes its profile's Pod Security level, by the library as well as by the admission of the
// cluster, which made it.
func TestPod_P1_P2_P3_P8(t *testing.T) {
	for _, profile := range []Profile{Hardened, Toolchain} {
		t.Run(string(profile), func(t *testing.T) {
			s := newStand(t, Options{Profile: profile, Labels: map[string]string{"team": "a"}, Env: map[string]string{"PRICE": "$(HOME) $$ $x"}}, nil)
			longID := strings.Repeat("run of a user/", 5)
			acquired, err := s.open(t, longID).Acquire(t.Context(), workspaces.AcquireOptions{
				Limits: workspaces.Limits{CPU: "500m", Memory: "256Mi", Storage: "1Gi", Lifetime: 10 * time.Minute},
			})
			require.NoError(t, err)
			w := acquired.Workspace
			pod, err := s.admin.CoreV1().Pods(s.namespace).Get(t.Context(), podOf(w), metav1.GetOptions{})
			require.NoError(t, err)

			evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
			require.NoError(t, err)
			for _, result := range evaluator.EvaluatePod(api.LevelVersion{Level: api.Level(levels[profile]), Version: api.LatestVersion()}, &pod.ObjectMeta, &pod.Spec) {
				require.True(t, result.Allowed, "%s: %s", result.ForbiddenReason, result.ForbiddenDetail)
			}
			spec, container := pod.Spec, pod.Spec.Containers[0]
			require.Len(t, spec.Containers, 1)
			require.Equal(t, corev1.RestartPolicyNever, spec.RestartPolicy)
			require.False(t, *spec.AutomountServiceAccountToken)
			require.False(t, *spec.EnableServiceLinks)
			require.False(t, spec.HostNetwork || spec.HostPID || spec.HostIPC)
			require.Equal(t, int64(660), *spec.ActiveDeadlineSeconds)
			require.Equal(t, corev1.FSGroupChangeOnRootMismatch, *spec.SecurityContext.FSGroupChangePolicy)
			require.Equal(t, corev1.SeccompProfileTypeRuntimeDefault, spec.SecurityContext.SeccompProfile.Type)
			require.False(t, *container.SecurityContext.AllowPrivilegeEscalation)
			require.Equal(t, profile == Hardened, *container.SecurityContext.ReadOnlyRootFilesystem)
			require.Equal(t, []corev1.Capability{"ALL"}, container.SecurityContext.Capabilities.Drop)
			require.Equal(t, strconv.FormatInt(w.Info().ExpiresAt.Add(time.Second-1).Unix(), 10), container.Command[len(container.Command)-1])
			for name, want := range map[corev1.ResourceName][2]string{"cpu": {"500m", "25m"}, "memory": {"256Mi", "64Mi"}, "ephemeral-storage": {"1Gi", "64Mi"}} {
				require.True(t, container.Resources.Limits.Name(name, resource.DecimalSI).Equal(resource.MustParse(want[0])), name)
				require.True(t, container.Resources.Requests.Name(name, resource.DecimalSI).Equal(resource.MustParse(want[1])), name)
			}
			for _, volume := range spec.Volumes {
				require.NotNil(t, volume.EmptyDir, volume.Name)
				require.NotNil(t, volume.EmptyDir.SizeLimit)
			}
			require.Equal(t, longID, pod.Annotations["carrel.dev/run"])
			require.Regexp(t, "^sha256-[0-9a-f]{40}$", pod.Labels["carrel.dev/run"])
			require.Equal(t, "a", pod.Labels["team"])
			require.Equal(t, w.ID(), pod.Labels["carrel.dev/workspace"])

			require.Equal(t, "$(HOME) $$ $x", shell(t, w, `printf %s "$PRICE"`))
			require.Equal(t, map[Profile]string{Hardened: "1000 1000", Toolchain: "0 0"}[profile], strings.TrimSpace(shell(t, w, `echo $(id -u) $(id -g)`)))
			for _, dir := range []string{"/workspace", "/tmp", "$HOME", "/cache", "$XDG_CACHE_HOME", "$GOMODCACHE"} {
				require.Equal(t, "runs\n", shell(t, w, `mkdir -p "`+dir+`"; printf '#!/bin/sh\necho runs\n' >"`+dir+`/x" && chmod +x "`+dir+`/x" && "`+dir+`/x"`), dir)
			}
			require.Contains(t, shell(t, w, `grep NoNewPrivs /proc/self/status`), "1")
			if profile == Hardened {
				require.Equal(t, "0000000000000000\n", shell(t, w, `sed -n 's/^CapBnd:.//p' /proc/self/status`))
			}
			require.Equal(t, "none\n", shell(t, w, `ls /var/run/secrets 2>/dev/null || echo none; env | grep KUBERNETES || :`))
		})
	}
}

// In the toolchain profile a package can be installed.
func TestInstall_P1(t *testing.T) {
	w := newStand(t, Options{Profile: Toolchain}, nil).workspace(t, workspaces.AcquireOptions{})
	require.Contains(t, shell(t, w, "dpkg -i /opt/carrel-test/hello.deb >&2 && hello"), "Hello, world!")
}

// What nothing inside can end: the main process.
func TestKillAll_P3(t *testing.T) {
	w := newStand(t, Options{}, nil).workspace(t, workspaces.AcquireOptions{})
	_, err := w.Exec(t.Context(), workspaces.Command{Args: []string{"sh", "-c", "kill -9 -1"}})
	t.Log(err)
	require.Equal(t, "on\n", shell(t, w, "echo on"))
}

func TestStart_P5_P8(t *testing.T) {
	for name, c := range map[string]struct {
		options Options
		limits  workspaces.Limits
		want    string
	}{
		"no such image":  {Options{Image: "carrel-test/none:1"}, workspaces.Limits{}, "ErrImageNeverPull"},
		"no node has it": {Options{StartTimeout: 5 * time.Second, Requests: workspaces.Limits{CPU: "500"}}, workspaces.Limits{CPU: "500"}, "Insufficient cpu"},
		"no such class":  {Options{RuntimeClass: "none"}, workspaces.Limits{}, `RuntimeClass "none" not found`},
		"no such claim":  {Options{CacheClaim: "none", StartTimeout: 5 * time.Second}, workspaces.Limits{}, `"none" not found`},
		"pids":           {Options{}, workspaces.Limits{PIDs: 10}, "podPidsLimit"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStand(t, c.options, nil)
			err := within(t, "acquire", func() error {
				_, err := s.open(t, "run").Acquire(t.Context(), workspaces.AcquireOptions{Limits: c.limits})
				return err
			})
			require.ErrorContains(t, err, c.want)
			t.Log(err)
		})
	}
}

// A quota that is used up is said as the API server says it.
func TestQuota_P8(t *testing.T) {
	s := newStand(t, Options{}, nil)
	quotas := s.admin.CoreV1().ResourceQuotas(s.namespace)
	_, err := quotas.Create(t.Context(), &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: "none"}, Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{"pods": resource.MustParse("0")}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	defer func() { require.NoError(t, quotas.Delete(context.Background(), "none", metav1.DeleteOptions{})) }()
	require.Eventually(t, func() bool {
		quota, err := quotas.Get(t.Context(), "none", metav1.GetOptions{})
		return err == nil && len(quota.Status.Hard) > 0
	}, bounded, 50*time.Millisecond)
	_, err = s.open(t, "run").Acquire(t.Context(), workspaces.AcquireOptions{})
	require.ErrorContains(t, err, "exceeded quota")
}

// A right that is missing is named.
func TestRights_P10(t *testing.T) {
	for verb, resources := range map[string][]string{"create": {"pods", "pods/exec"}, "get": {"pods/exec"}, "list": {"pods"}, "watch": {"pods"}, "delete": {"pods"}} {
		for _, missing := range resources {
			t.Run(verb+" "+missing, func(t *testing.T) {
				s := newStand(t, Options{StartTimeout: 10 * time.Second}, nil)
				roles := s.admin.RbacV1().Roles(s.namespace)
				role, err := roles.Get(t.Context(), "carrel", metav1.GetOptions{})
				require.NoError(t, err)
				whole := role.DeepCopy()
				for i := range role.Rules {
					if slices.Contains(role.Rules[i].Resources, missing) {
						role.Rules[i].Verbs = slices.DeleteFunc(role.Rules[i].Verbs, func(v string) bool { return v == verb })
					}
				}
				_, err = roles.Update(t.Context(), role, metav1.UpdateOptions{})
				require.NoError(t, err)
				defer func() {
					_, err := roles.Patch(context.Background(), "carrel", "application/merge-patch+json", rules(whole.Rules), metav1.PatchOptions{})
					require.NoError(t, err)
					time.Sleep(200 * time.Millisecond) // until the authorizer knows
				}()
				time.Sleep(200 * time.Millisecond)
				run := s.open(t, "run")
				err = within(t, "acquire and release", func() error {
					_, err := run.Acquire(t.Context(), workspaces.AcquireOptions{})
					if err == nil {
						err = run.Release(t.Context(), workspaces.Completed)
					}
					return err
				})
				if verb == "get" {
					require.NoError(t, err, "SPDY takes the place of WebSockets")
					return
				}
				require.ErrorContains(t, err, "cannot "+verb+" resource")
				t.Log(err)
			})
		}
	}
}

func rules(rules []rbacv1.PolicyRule) []byte {
	var all []string
	for _, r := range rules {
		all = append(all, fmt.Sprintf(`{"apiGroups":[""],"resources":["%s"],"verbs":["%s"]}`, strings.Join(r.Resources, `","`), strings.Join(r.Verbs, `","`)))
	}
	return []byte(`{"rules":[` + strings.Join(all, ",") + `]}`)
}

// One command out of memory is told apart from a failing one and from a dead pod.
func TestOutOfMemory_W18(t *testing.T) {
	w := newStand(t, Options{}, nil).workspace(t, workspaces.AcquireOptions{Limits: workspaces.Limits{Memory: "96Mi"}})
	r, err := w.Exec(t.Context(), workspaces.Command{Args: []string{"sh", "-c", "head -c 300M /dev/zero | tail"}})
	require.NoError(t, err)
	require.True(t, r.OOMKilled, "%+v", r)
	r, err = w.Exec(t.Context(), workspaces.Command{Args: []string{"sh", "-c", "exit 137"}})
	require.NoError(t, err)
	require.False(t, r.OOMKilled)
	require.Equal(t, 137, r.ExitCode)
}

// A blow is what happens to a pod while it is used.
func TestBlow_W17(t *testing.T) {
	now := int64(0)
	for name, c := range map[string]struct {
		hit  func(s *stand, w workspaces.Workspace) error
		want string
	}{
		"deleted": {func(s *stand, w workspaces.Workspace) error {
			return s.admin.CoreV1().Pods(s.namespace).Delete(context.Background(), podOf(w), metav1.DeleteOptions{GracePeriodSeconds: &now})
		}, "deleted"},
		"deleted with grace": {func(s *stand, w workspaces.Workspace) error {
			return s.admin.CoreV1().Pods(s.namespace).Delete(context.Background(), podOf(w), metav1.DeleteOptions{})
		}, "deleted"},
		"disk full": {func(_ *stand, w workspaces.Workspace) error {
			go func() {
				_, _ = w.Exec(context.Background(), workspaces.Command{Args: []string{"sh", "-c", "head -c 200M /dev/zero >big; sleep 100"}})
			}()
			return nil
		}, "Evicted|exceeds"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStand(t, Options{}, nil)
			run := s.open(t, "run")
			acquired, err := run.Acquire(t.Context(), workspaces.AcquireOptions{Limits: workspaces.Limits{Storage: "100Mi"}})
			require.NoError(t, err)
			w := acquired.Workspace
			out := newStarted()
			ran := make(chan error, 1)
			go func() {
				_, err := w.Exec(t.Context(), workspaces.Command{Args: []string{"sh", "-c", "echo on; sleep 100"}, Timeout: 110 * time.Second, Stdout: out})
				ran <- err
			}()
			<-out.began
			require.NoError(t, c.hit(s, w))
			err = within(t, "exec", func() error { return <-ran })
			require.ErrorIs(t, err, workspaces.ErrGone)
			require.Regexp(t, c.want, err.Error())
			_, err = w.Exec(t.Context(), workspaces.Command{Args: []string{"true"}})
			require.ErrorIs(t, err, workspaces.ErrGone)
			again, err := run.Acquire(t.Context(), workspaces.AcquireOptions{})
			require.NoError(t, err)
			require.Equal(t, "on\n", shell(t, again.Workspace, "echo on"))
		})
	}
}

// A repository of this host comes into a pod that needs no network for it.
func TestCheckout_C4(t *testing.T) {
	root, err := filepath.Abs("../..")
	require.NoError(t, err)
	s := newStand(t, Options{}, func(o *workspaces.Options) {
		o.AllowRepo = func(context.Context, string, string) error { return nil }
		o.AllowFileRepositories = true
		o.HostFetch = &workspaces.HostFetch{CacheDir: t.TempDir()}
	})
	w := s.workspace(t, workspaces.AcquireOptions{Repository: "file://" + root})
	require.Equal(t, "module github.com/carrel-dev/carrel\n", shell(t, w, "head -n 1 go.mod"))
}
