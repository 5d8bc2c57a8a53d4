#!/usr/bin/env bash
# docker.sh up|down|status|env: a Docker engine for the tests. One that answers already is used as it is; otherwise
# root on Debian gets one of our own: own socket, containerd, bridge, cgroup and state, so that a Docker which the
# user installed later, or has stopped for now, finds everything as it was.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

engine=docker
state=$cache/docker
sock=$state/run/docker.sock
own=unix://$sock
bridge=carrel-docker
# Linux shows the processes of a control group even when the engine that started them is dead.
cgroup=carrel-docker

# An earlier env.sh exported our own socket: that is not the user naming an engine.
if [ "${DOCKER_HOST:-}" = "$own" ]; then unset DOCKER_HOST; fi

# answers HOST prints the engine's version. A dead ssh:// or tcp:// host must not hang the build.
answers() { timeout 10 docker --host "$1" version --format '{{.Server.Version}}' 2>/dev/null; }

# theirs: the engine that the docker command itself would talk to. Go's client knows no contexts, hence the look-up.
theirs() {
  command -v docker >/dev/null || return 1
  host=${DOCKER_HOST:-$(docker context inspect --format '{{.Endpoints.docker.Host}}' 2>/dev/null)} || return 1
  [ -n "$host" ] && version=$(answers "$host")
}

ours() {
  host=$own
  command -v docker >/dev/null && alive "$state" dockerd && version=$(answers "$own")
}

# A second dockerd in one network namespace would flush the iptables chains of the first.
other_dockerd() {
  local p
  for p in /proc/[0-9]*; do
    [ "$(cat "$p/comm" 2>/dev/null)" = dockerd ] || continue
    [ "$(readlink "$p/ns/net")" = "$(readlink /proc/self/ns/net)" ] || continue
    echo "${p#/proc/}"
    return
  done
  return 1
}

start() {
  local pid packages=()
  [ -z "${DOCKER_HOST:-}" ] || unavailable "DOCKER_HOST names an engine that does not answer; start it, or unset DOCKER_HOST"
  may_install || unavailable "no engine answers, and $(why_not); start Docker, or name one in DOCKER_HOST"
  [ ${#sock} -le 100 ] || unavailable "a socket's path may have 100 characters: choose a shorter CARREL_CACHE"

  command -v dockerd >/dev/null || packages+=(docker.io)
  command -v iptables >/dev/null || packages+=(iptables)
  command -v ip >/dev/null || packages+=(iproute2)
  apt_install "a Docker engine" "${packages[@]}"
  # From Debian 13 on the command has a package of its own.
  command -v docker >/dev/null || apt_install "a Docker engine" docker-cli
  # With the command just installed an engine may answer that could not be asked before.
  if theirs; then return; fi

  sweep # what a killed machine or session left
  if pid=$(other_dockerd); then
    unavailable "a dockerd of somebody else (process $pid) runs here but does not answer; name its socket in DOCKER_HOST"
  fi

  say "starting a Docker engine of our own (state: $state; hack/engines/docker.sh down stops it)"
  mkdir -p "$state/run"
  remember
  ip link add "$bridge" type bridge
  ip address add 172.30.255.1/24 dev "$bridge"
  ip link set "$bridge" up

  # Left alone, dockerd shares a containerd of the system's where there is one, and reads /etc/docker.
  cat >"$state/run/containerd.toml" <<TOML
version = 2
root = "$state/containerd"
state = "$state/run/containerd"
disabled_plugins = ["io.containerd.grpc.v1.cri", "io.containerd.internal.v1.opt"]
[grpc]
address = "$state/run/containerd.sock"
TOML
  # Older engines write an identity key, below /etc unless told; newer ones may not know the setting.
  if grep -q deprecated-key-path "$(command -v dockerd)"; then
    echo "{\"deprecated-key-path\": \"$state/key.json\"}"
  else
    echo '{}'
  fi >"$state/run/daemon.json"
  launch "$state" containerd containerd --config "$state/run/containerd.toml"
  poll 30 ready_or_dead containerd test -S "$state/run/containerd.sock" || true
  launch "$state" dockerd dockerd --config-file "$state/run/daemon.json" --host "$own" \
    --containerd "$state/run/containerd.sock" --data-root "$state/data" --exec-root "$state/run/exec" \
    --pidfile "$state/run/dockerd.own.pid" --bridge "$bridge" \
    --cgroup-parent "/$cgroup" --exec-opt native.cgroupdriver=cgroupfs
  poll 60 ready_or_dead dockerd answers "$own" || true
  ours || {
    tail -n 15 "$state"/log/{containerd,dockerd}.log >&2 || true
    sweep
    unavailable "the engine did not come up; its logs are in $state/log"
  }
  clear_out
}

# clear_out: what tests have left, in a session that was killed, say, must not meet the next ones.
clear_out() {
  docker --host "$own" ps --all --quiet | xargs -r docker --host "$own" rm --force --volumes >/dev/null || true
  docker --host "$own" volume ls --quiet | xargs -r docker --host "$own" volume rm >/dev/null || true
  docker --host "$own" network prune --force >/dev/null || true
}

ready_or_dead() { ended "$state" "$1" || "${@:2}"; }

# remember: dockerd turns the machine into a router that drops what it does not know. down takes both back, and
# leaves chains that a stopped engine of the user's had left.
remember() {
  {
    echo "forward=$(cat /proc/sys/net/ipv4/ip_forward)"
    echo "policy=$(iptables -S FORWARD | sed -n 's/^-P FORWARD //p')"
    echo "chains=$({ iptables-save; ip6tables-save; } 2>/dev/null | grep -c ^:DOCKER || true)"
  } >"$state/run/before"
}

# forget_rules PATTERN deletes every rule in which the pattern is a word.
forget_rules() {
  local command table rule
  for command in iptables ip6tables; do
    for table in filter nat raw; do
      { "$command" -t "$table" -S 2>/dev/null || true; } | sed -nE "/ ($1)( |\$)/s/^-A //p" | while read -r rule; do
        # shellcheck disable=SC2086 # the words of a rule
        "$command" -t "$table" -D $rule || true
      done
    done
  done
}

forget_chains() {
  local command table chain
  for command in iptables ip6tables; do
    for table in filter nat raw; do
      { "$command" -t "$table" -S 2>/dev/null || true; } | sed -n 's/^-N DOCKER/DOCKER/p' | while read -r chain; do
        "$command" -t "$table" -X "$chain" || true
      done
    done
  done
}

# sweep stops our engine and removes what it, or one that was killed, left on the machine. Images and layers stay.
sweep() {
  [ -d "$state/run" ] || return 0
  local p mount forward=1 policy=ACCEPT chains=0 name names=$bridge
  halt "$state" dockerd
  halt "$state" containerd
  for p in /proc/[0-9]*; do
    if { tr '\0' ' ' <"$p/cmdline"; } 2>/dev/null | grep -qF -- "-address $state/run/containerd.sock"; then
      kill -9 "${p#/proc/}" 2>/dev/null || true # a shim
    fi
  done
  find /sys/fs/cgroup -path "*/$cgroup/*" -name cgroup.procs -exec cat {} + 2>/dev/null | sort -u | xargs -r kill -9 2>/dev/null || true
  poll 5 remove_cgroup || say "a control group $cgroup stays"
  awk '{ print $5 }' /proc/self/mountinfo | { grep -F "$state/" || true; } | sort -r | while read -r mount; do
    umount -l "$(printf %b "$mount")" || true
  done

  if [ -f "$state/run/before" ]; then
    # shellcheck source=/dev/null
    . "$state/run/before"
    # Networks that tests made have bridges too; the engine's own records name them.
    for name in "$bridge" $({ grep -aoh 'br-[0-9a-f]\{12\}' "$state/data/network/files/local-kv.db" 2>/dev/null || true; } | sort -u); do
      names+="|$name"
      ip link delete "$name" 2>/dev/null || true
    done
    # Docker's own chains go too, unless an engine of the user's had left some.
    if [ "$chains" = 0 ]; then
      forget_rules "$names|DOCKER[^ ]*"
      forget_chains
    else
      forget_rules "$names"
    fi
    iptables -P FORWARD "$policy"
    echo "$forward" >/proc/sys/net/ipv4/ip_forward
  fi
  rm -rf --one-file-system "$state/run"
  # Places that containerd and dockerd have no setting for; rmdir takes them only when nobody uses them.
  rmdir /run/containerd/s /run/containerd /run/docker/plugins /run/docker 2>/dev/null || true
}

remove_cgroup() {
  find /sys/fs/cgroup -depth -type d -path "*/$cgroup*" -exec rmdir {} + 2>/dev/null || true
  [ -z "$(find /sys/fs/cgroup -maxdepth 2 -name "$cgroup")" ]
}

up() {
  lock docker
  theirs || ours || start
  # image.sh prints the reason when there is no image: without one the engine is of no use to the tests.
  DOCKER_HOST=$host "$here/image.sh" || exit $?
  echo "docker: ready (engine $version at $host)"
}

down() {
  if [ ! -d "$state/run" ]; then
    echo "docker: nothing of ours is up"
    return
  fi
  lock docker
  if ours; then clear_out; fi
  sweep
  echo "docker: stopped (images stay in $state)"
}

status() {
  if theirs || ours; then echo "docker: engine $version at $host"; else echo "docker: no engine answers"; fi
}

print_env() {
  if theirs || ours; then
    printf 'export DOCKER_HOST=%q\n' "$host"
    DOCKER_HOST=$host "$here/image.sh" env
  fi
}

case ${1:-} in
  up | down | status) "$1" ;;
  env) print_env ;;
  *) say "usage: docker.sh up|down|status|env"; exit 2 ;;
esac
