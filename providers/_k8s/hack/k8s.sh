#!/usr/bin/env bash
# k8s.sh up|down|status|env: a Kubernetes cluster for the tests. One that KUBECONFIG leads to is used as it is; otherwise
# root on Debian gets one of our own: one node of real components on loopback, with its own state, containerd, bridge
# and control group.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

engine=k8s
state=$cache/k8s
own=$state/admin.kubeconfig
sock=$state/run/containerd.sock
bridge=carrel-k8s
cgroup=carrel-k8s
api=127.0.0.1:26443
etcd=127.0.0.1:23790
peer=127.0.0.1:23800
kubelet_port=21250

if [ "${KUBECONFIG:-}" = "$own" ]; then unset KUBECONFIG; fi

# A cluster is used only where it is named: ~/.kube/config may lead to one that matters.
theirs() { [ -n "${KUBECONFIG:-}" ] && kubectl_of && answers "$KUBECONFIG"; }
ours() { [ -f "$own" ] && alive "$state" kubelet && kubectl_of && answers "$own"; }

kubectl_of() {
  kubectl=$(find "$state" -maxdepth 2 -path '*/bin-*/kubectl' 2>/dev/null | sort | tail -n 1)
  [ -n "$kubectl" ] || kubectl=$(command -v kubectl)
}

answers() {
  version=$(timeout 10 "$kubectl" --kubeconfig "$1" version 2>/dev/null | sed -n 's/^Server Version: //p')
  [ -n "$version" ] && config=$1
}

start() {
  local packages=() name bin
  [ -z "${KUBECONFIG:-}" ] || unavailable "KUBECONFIG names a cluster that does not answer; start it, or unset KUBECONFIG"
  may_install || unavailable "KUBECONFIG names no cluster, and $(why_not); or name one in KUBECONFIG (kind, minikube, a real one)"
  docker_env=$("$here/docker.sh" env)
  [ -n "$docker_env" ] || unavailable "the images come from a Docker engine, and there is none"
  eval "$docker_env"
  bin=$("$here/k8s-build.sh") || exit $?
  command -v etcd >/dev/null || packages+=(etcd-server)
  command -v containerd >/dev/null || packages+=(containerd)
  command -v runc >/dev/null || packages+=(runc)
  [ -x /usr/lib/cni/bridge ] || packages+=(containernetworking-plugins)
  command -v openssl >/dev/null || packages+=(openssl)
  command -v iptables >/dev/null || packages+=(iptables)
  apt_install "a Kubernetes node" "${packages[@]}"
  sweep # what a killed machine or session left

  say "starting a Kubernetes node of our own (state: $state; hack/engines/k8s.sh down stops it)"
  mkdir -p "$state"/{run,pki,cni}
  remember
  certificates
  launch "$state" etcd etcd --data-dir "$state/run/etcd" --listen-client-urls "http://$etcd" --advertise-client-urls "http://$etcd" \
    --listen-peer-urls "http://$peer" --initial-advertise-peer-urls "http://$peer" --initial-cluster "default=http://$peer" --unsafe-no-fsync
  containerd_config
  launch "$state" containerd containerd -c "$state/run/containerd.toml"
  api_server
  poll 60 ready_or_dead containerd ctr -a "$sock" version || true
  images
  poll 60 ready_or_dead apiserver ready || true
  kubelet
  local admin=(--kubeconfig "$own" --authentication-kubeconfig "$own" --authorization-kubeconfig "$own" --leader-elect=false)
  launch "$state" controller-manager "$bin/kube-controller-manager" "${admin[@]}" --secure-port=0 \
    --service-account-private-key-file="$state/pki/sa.key" --root-ca-file="$state/pki/ca.crt"
  launch "$state" scheduler "$bin/kube-scheduler" "${admin[@]}" --secure-port=0
  kubectl=$bin/kubectl
  poll 120 node_ready || {
    for name in etcd containerd apiserver kubelet controller-manager scheduler; do tail -n 5 "$state/log/$name.log" >&2 || true; done
    sweep
    unavailable "the node did not come up; its logs are in $state/log"
  }
  ours
}

ready_or_dead() { ended "$state" "$1" || "${@:2}"; }
ready() { "$bin/kubectl" --kubeconfig "$own" get --raw /readyz; }
node_ready() {
  "$kubectl" --kubeconfig "$own" get nodes | grep -q ' Ready' && "$kubectl" --kubeconfig "$own" get serviceaccount default
}

certificates() {
  local user
  cd "$state/pki"
  certificate() { # NAME SUBJECT EXTENSIONS
    openssl req -newkey rsa:2048 -nodes -keyout "$1.key" -out "$1.csr" -subj "$2" 2>/dev/null
    openssl x509 -req -in "$1.csr" -CA ca.crt -CAkey ca.key -CAcreateserial -out "$1.crt" -days 3650 -extfile <(echo "$3") 2>/dev/null
  }
  if [ ! -f done ]; then
    openssl req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.crt -days 3650 -subj /CN=carrel-test-ca 2>/dev/null
    certificate apiserver /CN=kube-apiserver "subjectAltName=IP:127.0.0.1,IP:10.96.0.1,DNS:localhost,DNS:kubernetes"
    certificate admin /O=system:masters/CN=admin "extendedKeyUsage=clientAuth"
    certificate kubelet /O=system:nodes/CN=system:node:localhost "$(printf 'subjectAltName=IP:127.0.0.1,DNS:localhost\nextendedKeyUsage=serverAuth,clientAuth')"
    openssl genrsa -out sa.key 2048 2>/dev/null
    openssl rsa -in sa.key -pubout -out sa.pub 2>/dev/null
    touch done
  fi
  cd "$here"
  for user in admin kubelet; do
    cat >"$state/$user.kubeconfig" <<YAML
apiVersion: v1
kind: Config
clusters: [{name: carrel, cluster: {server: "https://$api", certificate-authority: "$state/pki/ca.crt"}}]
users: [{name: $user, user: {client-certificate: "$state/pki/$user.crt", client-key: "$state/pki/$user.key"}}]
contexts: [{name: carrel, context: {cluster: carrel, user: $user}}]
current-context: carrel
YAML
    chmod 600 "$state/$user.kubeconfig"
  done
}

api_server() {
  launch "$state" apiserver "$bin/kube-apiserver" --etcd-servers="http://$etcd" --secure-port="${api#*:}" --bind-address=127.0.0.1 \
    --advertise-address=127.0.0.1 --tls-cert-file="$state/pki/apiserver.crt" --tls-private-key-file="$state/pki/apiserver.key" \
    --client-ca-file="$state/pki/ca.crt" --kubelet-certificate-authority="$state/pki/ca.crt" \
    --kubelet-client-certificate="$state/pki/admin.crt" --kubelet-client-key="$state/pki/admin.key" \
    --service-account-issuer=https://kubernetes.default --service-account-key-file="$state/pki/sa.pub" \
    --service-account-signing-key-file="$state/pki/sa.key" --service-cluster-ip-range=10.96.0.0/16 --authorization-mode=Node,RBAC \
    --allow-privileged=false --enable-admission-plugins=NodeRestriction --kubelet-preferred-address-types=Hostname
}

containerd_config() {
  containerd config default | sed -e "s#^root = .*#root = \"$state/containerd\"#" -e "s#^state = .*#state = \"$state/run/containerd\"#" \
    -e "s#/run/containerd/containerd.sock#$sock#" -e 's#sandbox_image = .*#sandbox_image = "carrel-test/pause:1"#' \
    -e 's#bin_dir = .*#bin_dir = "/usr/lib/cni"#' -e "s#conf_dir = \"/etc/cni/net.d\"#conf_dir = \"$state/cni\"#" \
    -e 's/restrict_oom_score_adj = false/restrict_oom_score_adj = true/' >"$state/run/containerd.toml"
  cat >"$state/cni/10-bridge.conflist" <<JSON
{"cniVersion":"0.4.0","name":"carrel","plugins":[{"type":"bridge","bridge":"$bridge","isGateway":true,"ipMasq":true,
"ipam":{"type":"host-local","dataDir":"$state/run/ipam","ranges":[[{"subnet":"10.244.0.0/24"}]],"routes":[{"dst":"0.0.0.0/0"}]}}]}
JSON
}

# The pause program is process 1 of a pod that shares its processes: it has to reap.
images() {
  local image stamp id dir=$state/pause
  if ! docker image inspect carrel-test/pause:1 >/dev/null 2>&1; then
    mkdir -p "$dir"
    cat >"$dir/pause.c" <<'C'
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
static void reap(int s) { (void)s; while (waitpid(-1, 0, WNOHANG) > 0); }
static void leave(int s) { (void)s; exit(0); }
int main(void) { signal(SIGCHLD, reap); signal(SIGTERM, leave); signal(SIGINT, leave); for (;;) pause(); }
C
    gcc -O2 -static -o "$dir/pause" "$dir/pause.c"
    tar -C "$dir" -c pause | docker import -c 'ENTRYPOINT ["/pause"]' - carrel-test/pause:1 >/dev/null
  fi
  for image in carrel-test/pause:1 "$CARREL_TEST_SANDBOX_IMAGE"; do
    # Beside the images, so that one goes with the other.
    stamp=$state/containerd/${image//[^a-z0-9]/-}.id
    id=$(docker image inspect --format '{{.Id}}' "$image")
    if [ "$(cat "$stamp" 2>/dev/null)" = "$id" ]; then continue; fi
    docker save "$image" | ctr -a "$sock" -n k8s.io images import - >/dev/null
    echo "$id" >"$stamp"
  done
}

kubelet() {
  cat >"$state/run/kubelet.yaml" <<YAML
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: 127.0.0.1
port: $kubelet_port
healthzPort: 0
authentication: {anonymous: {enabled: false}, webhook: {enabled: true}, x509: {clientCAFile: "$state/pki/ca.crt"}}
authorization: {mode: Webhook}
tlsCertFile: "$state/pki/kubelet.crt"
tlsPrivateKeyFile: "$state/pki/kubelet.key"
cgroupDriver: cgroupfs
cgroupRoot: /
failSwapOn: false
failCgroupV1: false
podPidsLimit: 512
maxPods: 110
syncFrequency: 10s
containerRuntimeEndpoint: "unix://$sock"
evictionHard: {nodefs.available: "1%", imagefs.available: "1%", memory.available: 100Mi}
YAML
  launch "$state" kubelet "$bin/kubelet" --config="$state/run/kubelet.yaml" --kubeconfig="$state/kubelet.kubeconfig" \
    --hostname-override=localhost --root-dir="$state/run/kubelet" --cert-dir="$state/run/kubelet-pki"
}

# remember: the bridge plugin makes the machine a router, and masquerades.
remember() { echo "forward=$(cat /proc/sys/net/ipv4/ip_forward)" >"$state/run/before"; }

sweep() {
  [ -d "$state/run" ] || return 0
  local p mount forward=1 name
  for name in scheduler controller-manager kubelet apiserver etcd containerd; do halt "$state" "$name"; done
  for p in /proc/[0-9]*; do
    if { tr '\0' ' ' <"$p/cmdline"; } 2>/dev/null | grep -qF -- "-address $sock"; then kill -9 "${p#/proc/}" 2>/dev/null || true; fi
  done
  find /sys/fs/cgroup -path "*/kubepods/*" -name cgroup.procs -exec cat {} + 2>/dev/null | sort -u | xargs -r kill -9 2>/dev/null || true
  poll 5 remove_cgroup || say "a control group kubepods stays"
  awk '{ print $5 }' /proc/self/mountinfo | { grep -F "$state/" || true; } | sort -r | while read -r mount; do
    umount -l "$(printf %b "$mount")" || true
  done
  ip link delete "$bridge" 2>/dev/null || true
  iptables -t nat -S 2>/dev/null | { grep -F 'name: "carrel" id:' || true; } | sed 's/^-A //' | while read -r rule; do
    eval "iptables -t nat -D $rule" || true
  done
  iptables -t nat -S 2>/dev/null | sed -n 's/^-N \(CNI-[0-9a-f]*\)$/\1/p' | while read -r name; do
    iptables -t nat -F "$name" && iptables -t nat -X "$name" || true
  done
  for name in KUBE-FIREWALL KUBE-KUBELET-CANARY KUBE-MARK-DROP KUBE-MARK-MASQ KUBE-POSTROUTING; do forget_chain "$name"; done
  if [ -f "$state/run/before" ]; then
    # shellcheck source=/dev/null
    . "$state/run/before"
    echo "$forward" >/proc/sys/net/ipv4/ip_forward
  fi
  rm -rf --one-file-system "$state/run"
  rmdir /run/containerd/s /run/containerd 2>/dev/null || true
}

forget_chain() {
  local command table rule
  for command in iptables ip6tables; do
    for table in filter nat mangle; do
      { "$command" -t "$table" -S 2>/dev/null || true; } | sed -nE "/^-A .* -j $1( |\$)/s/^-A //p" | while read -r rule; do
        eval "$command -t $table -D $rule" 2>/dev/null || true
      done
      "$command" -t "$table" -F "$1" 2>/dev/null && "$command" -t "$table" -X "$1" 2>/dev/null || true
    done
  done
}

remove_cgroup() {
  find /sys/fs/cgroup -depth -type d -path "*/kubepods*" -exec rmdir {} + 2>/dev/null || true
  [ -z "$(find /sys/fs/cgroup -maxdepth 2 -name kubepods)" ]
}

up() {
  lock k8s
  theirs || ours || start
  echo "k8s: ready (Kubernetes $version, $config)"
}

down() {
  lock k8s
  if [ ! -d "$state/run" ]; then
    echo "k8s: nothing of ours is up"
    return
  fi
  sweep
  echo "k8s: stopped (binaries and images stay in $state)"
}

status() {
  if theirs || ours; then echo "k8s: Kubernetes $version, $config"; else echo "k8s: no engine answers"; fi
}

print_env() {
  if theirs || ours; then
    printf 'export KUBECONFIG=%q CARREL_TEST_KUBECONFIG=%q\n' "$config" "$config"
    printf 'export CARREL_TEST_KUBECTL=%q\n' "$kubectl"
  fi
}

case ${1:-} in
  up | down | status) "$1" ;;
  env) print_env ;;
  *) say "usage: k8s.sh up|down|status|env"; exit 2 ;;
esac
