package k8s

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/carrel-dev/carrel/workspaces"
)

// A cluster is a namespace of a real one, whose Pod Security level a profile passes, and the account of deploy/ in it.
type cluster struct {
	admin     *kubernetes.Clientset
	config    *rest.Config // the account's
	namespace string
}

var (
	clustersMu sync.Mutex
	clusters   = make(map[Profile]*cluster)
)

// levels are the Pod Security levels that the profiles pass.
var levels = map[Profile]string{Hardened: "restricted", Toolchain: "baseline"}

// testImage is one that carrel can work in; the user may name another.
var testImage = os.Getenv("CARREL_TEST_SANDBOX_IMAGE")

// clusterFor returns what a profile's tests work in, or skips the test: make test starts a cluster where it can, and says loudly
// at its end what was not tested.
func clusterFor(t testing.TB, profile Profile) *cluster {
	t.Helper()
	path := os.Getenv("CARREL_TEST_KUBECONFIG")
	if path == "" || testImage == "" {
		t.Skip("k8s: no cluster with a test image; make test and make engines-up have one where they can")
	}
	clustersMu.Lock()
	defer clustersMu.Unlock()
	if c := clusters[profile]; c != nil {
		return c
	}
	config, err := clientcmd.BuildConfigFromFlags("", path)
	require.NoError(t, err)
	config.QPS = -1
	// A certificate in a file would be watched, for ever.
	require.NoError(t, rest.LoadTLSFiles(config))
	config.CertFile, config.KeyFile, config.CAFile = "", "", ""
	admin, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	ctx := t.Context()
	namespace, err := admin.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		GenerateName: "carrel-test-", Labels: map[string]string{"pod-security.kubernetes.io/enforce": levels[profile]},
	}}, metav1.CreateOptions{})
	require.NoError(t, err)
	c := &cluster{admin: admin, namespace: namespace.Name}
	clusters[profile] = c
	c.apply(t)
	require.Eventually(t, func() bool { // without which no pod is admitted
		_, err := admin.CoreV1().ServiceAccounts(c.namespace).Get(ctx, "default", metav1.GetOptions{})
		return err == nil
	}, bounded, 50*time.Millisecond)
	seconds := int64(24 * time.Hour / time.Second)
	token, err := admin.CoreV1().ServiceAccounts(c.namespace).CreateToken(ctx, "carrel", &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	c.config = rest.AnonymousClientConfig(config)
	c.config.BearerToken = token.Status.Token
	return c
}

// apply makes what deploy/role.yaml has, in the namespace.
func (c *cluster) apply(t testing.TB) {
	t.Helper()
	data, err := os.ReadFile("../../deploy/role.yaml")
	require.NoError(t, err)
	documents := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(data), 4096)
	made := 0
	for {
		var document struct {
			metav1.TypeMeta   `json:",inline"`
			metav1.ObjectMeta `json:"metadata"`
			Rules             []rbacv1.PolicyRule `json:"rules"`
			RoleRef           rbacv1.RoleRef      `json:"roleRef"`
			Subjects          []rbacv1.Subject    `json:"subjects"`
		}
		if err := documents.Decode(&document); errors.Is(err, io.EOF) {
			break
		} else {
			require.NoError(t, err)
		}
		switch document.Kind {
		case "ServiceAccount":
			_, err = c.admin.CoreV1().ServiceAccounts(c.namespace).Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: document.ObjectMeta}, metav1.CreateOptions{})
		case "Role":
			_, err = c.admin.RbacV1().Roles(c.namespace).Create(t.Context(), &rbacv1.Role{ObjectMeta: document.ObjectMeta, Rules: document.Rules}, metav1.CreateOptions{})
		case "RoleBinding":
			for i := range document.Subjects {
				document.Subjects[i].Namespace = c.namespace
			}
			_, err = c.admin.RbacV1().RoleBindings(c.namespace).Create(t.Context(), &rbacv1.RoleBinding{
				ObjectMeta: document.ObjectMeta, RoleRef: document.RoleRef, Subjects: document.Subjects,
			}, metav1.CreateOptions{})
		default:
			err = fmt.Errorf("kind %q", document.Kind)
		}
		require.NoError(t, err)
		made++
	}
	require.Equal(t, 3, made)
}

// removeClusters deletes the namespaces, at the end of all tests.
func removeClusters() error {
	var failures []error
	for _, c := range clusters {
		ctx, cancel := context.WithTimeout(context.Background(), bounded)
		failures = append(failures, c.admin.CoreV1().Namespaces().Delete(ctx, c.namespace, metav1.DeleteOptions{}))
		cancel()
		closeIdle(c.admin)
	}
	return errors.Join(failures...)
}

// bounded is when a call that the cluster fails must have returned at the latest, on a busy machine.
const bounded = time.Minute

// small is what a pod of the tests is scheduled by.
var small = workspaces.Limits{CPU: "25m", Memory: "64Mi", Storage: "64Mi"}

// provider returns one that works in the cluster as the account of deploy/.
func (c *cluster) provider(t testing.TB, options Options) *Provider {
	t.Helper()
	options.Config, options.Namespace, options.Pull = c.config, c.namespace, corev1.PullNever
	if options.Image == "" {
		options.Image = testImage
	}
	if options.Requests == (workspaces.Limits{}) {
		options.Requests = small
	}
	p, err := New(options)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Close()) })
	return p
}

// leftovers lists the pods of a deployment.
func (c *cluster) leftovers(ctx context.Context, deployment string) ([]string, error) {
	all, err := c.admin.CoreV1().Pods(c.namespace).List(ctx, ours(deployment, ""))
	if err != nil {
		return nil, err
	}
	var left []string
	for _, pod := range all.Items {
		left = append(left, "pod "+pod.Name)
	}
	return left, nil
}

// deletePod deletes a pod as kubectl does: it returns when it is gone.
func (c *cluster) deletePod(ctx context.Context, name string) error {
	if err := c.admin.CoreV1().Pods(c.namespace).Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		return err
	}
	for {
		if _, err := c.admin.CoreV1().Pods(c.namespace).Get(ctx, name, metav1.GetOptions{}); apierrors.IsNotFound(err) {
			return nil
		} else if err != nil {
			return err
		}
		time.Sleep(50 * time.Millisecond)
	}
}
