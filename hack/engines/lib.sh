# shellcheck shell=bash disable=SC2034,SC2154 # what the scripts that source this use and set
# What the engine scripts share. Sourced, never run.
#
# An engine script NAME.sh takes a verb:
#   up      makes the engine ready. Progress goes to stderr; stdout gets one line, "NAME: ready ..." (exit 0)
#           or "NAME: not available: why, and how to have it" (exit 3)
#   down    stops what up started, and nothing else
#   status  one line
#   env     shell lines that tell the tests where the engine is; nothing when there is none

set -Eeuo pipefail
# A script that set -e ends says where, or nobody would know why.
trap 'printf "%s: line %s: a command failed\n" "$0" "$LINENO" >&2' ERR

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# One directory holds everything that outlives a script, so that deleting it (after down) leaves no trace.
cache=${CARREL_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/carrel}
# In the order in which they start: a later engine may need an earlier one.
engines=(docker)
# A root shell made by su has no sbin, where dockerd's helpers are.
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin

say() { printf '%s\n' "$*" >&2; }

unavailable() {
  printf '%s: not available: %s\n' "$engine" "$*"
  exit 3
}

# Two checkouts, or two makes, share the cache: one at a time changes an engine. The lock is descriptor 9 and
# ends with the script, however that ends.
lock() {
  command -v flock >/dev/null || unavailable "these scripts are for Linux; elsewhere set DOCKER_HOST and CARREL_TEST_SANDBOX_IMAGE and run go test"
  mkdir -p "$cache"
  exec 9>"$cache/$1.lock"
  flock -w 900 9 || unavailable "another process has held $cache/$1.lock for 15 minutes"
}

# may_install: the one place that decides whether this machine is ours to change.
may_install() {
  [ "${CARREL_ENGINES:-}" != off ] && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null
}

# why_not says which of its conditions failed.
why_not() {
  if [ "${CARREL_ENGINES:-}" = off ]; then echo "CARREL_ENGINES=off forbids to install or start one"
  else echo "to install one takes root on Debian"; fi
}

# apt_install PURPOSE PACKAGE... says what it installs before it does.
apt_install() {
  local purpose=$1 log=$cache/apt.log
  shift
  [ $# -gt 0 ] || return 0
  say "installing Debian packages for $purpose: $* (CARREL_ENGINES=off prevents it; log: $log)"
  (
    # A package must not start its service: the engine would come up with its state in the system's places.
    policy=/usr/sbin/policy-rc.d
    if [ ! -e "$policy" ]; then
      trap 'rm -f "$policy"' EXIT
      printf '#!/bin/sh\nexit 101\n' >"$policy"
      chmod 755 "$policy"
    fi
    with_lists env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 \
      install -qq --yes --no-install-recommends "$@"
  ) >"$log" 2>&1 </dev/null 9>&- || {
    tail -n 20 "$log" >&2
    unavailable "apt-get could not install $*"
  }
}

# with_lists runs a command that needs apt's package lists, and updates them only when it fails without.
with_lists() {
  "$@" || { apt-get -qq update && "$@"; }
}

# poll SECONDS COMMAND... waits until the command succeeds.
poll() {
  local end=$((SECONDS + $1))
  shift
  until "$@" >/dev/null 2>&1; do
    [ "$SECONDS" -lt "$end" ] || return 1
    sleep 0.1
  done
}

# Daemons: DIR/run/NAME.pid holds the process id and its start time, so that a number that the kernel has since
# given to somebody else is never taken for ours.
born() {
  local stat
  stat=$(cat "/proc/$1/stat" 2>/dev/null) || return 1
  # Field 2, the name, may hold spaces and brackets: count after its end.
  read -ra stat <<<"${stat##*) }"
  [ "${stat[0]}" != Z ] && echo "${stat[19]}"
}

# launch DIR NAME COMMAND... outlives the script and keeps none of its descriptors, the lock above all.
launch() {
  local dir=$1 name=$2
  shift 2
  mkdir -p "$dir/run" "$dir/log"
  setsid "$@" </dev/null >"$dir/log/$name.log" 2>&1 9>&- &
  echo "$! $(born $!)" >"$dir/run/$name.pid"
}

alive() {
  local pid since
  { read -r pid since <"$1/run/$2.pid"; } 2>/dev/null && [ "$(born "$pid")" = "$since" ]
}

ended() { ! alive "$@"; }

# halt DIR NAME: TERM, then KILL.
halt() {
  local pid _
  if alive "$1" "$2"; then
    read -r pid _ <"$1/run/$2.pid"
    kill "$pid" 2>/dev/null || true
    poll 20 ended "$1" "$2" || kill -9 "$pid" 2>/dev/null || true
    poll 5 ended "$1" "$2" || say "process $pid ($2) does not end"
  fi
  rm -f "$1/run/$2.pid"
}
