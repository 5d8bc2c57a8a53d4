#!/usr/bin/env bash
# image.sh: loads the test images into the Docker engine at DOCKER_HOST. No registry is needed: they are made of
# Debian packages, once per recipe, and kept as tar files in the cache.
# image.sh env: shell lines that name those that are loaded.
#
#   carrel-test/sandbox:1  what a workspace needs, and no more: sh, bash, GNU coreutils, git, ps, pgrep, python3, apt,
#                          and /opt/carrel-test/hello.deb for "a package can be installed". No user 1000, no /workspace:
#                          an image that lacks them must work.
#   carrel-test/busybox:1  a busybox userland with a git that only states its version, so that what carrel's
#                          self-test must refuse is the userland and nothing else.
#
# CARREL_TEST_SANDBOX_IMAGE and CARREL_TEST_BUSYBOX_IMAGE name other images, which are then taken as they are; with the
# first, none is made.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

engine=docker
images=(sandbox busybox)
store=$cache/images

recipe_sandbox() {
  mkdir -p "$store/debs"
  debootstrap --variant=minbase --include=git,ca-certificates,procps,python3-minimal \
    --cache-dir="$store/debs" "$suite" "$1" "$mirror"
  # Empty directories stay where a package expects them; apt and dpkg keep everything that they need to work.
  rm -rf "$1"/usr/share/{doc,man,info,locale,lintian}/* "$1"/var/lib/apt/lists/* "$1"/var/cache/apt/* "$1"/var/log/*
  mkdir -p "$1/var/lib/apt/lists/partial" "$1/var/cache/apt/archives/partial" "$1/opt/carrel-test"
  package hello "$1/opt/carrel-test/hello.deb"
}

recipe_busybox() {
  local applet
  mkdir -p "$1"/{bin,etc,tmp,usr/bin,root}
  chmod 1777 "$1/tmp"
  package busybox-static "$1/busybox.deb"
  dpkg-deb --fsys-tarfile "$1/busybox.deb" | tar -x -C "$1/bin" --transform='s#.*/##' --wildcards '*/bin/busybox'
  rm "$1/busybox.deb"
  for applet in $("$1/bin/busybox" --list); do
    [ "$applet" = busybox ] || ln -s busybox "$1/bin/$applet"
  done
  echo 'root:x:0:0:root:/root:/bin/sh' >"$1/etc/passwd"
  printf '#!/bin/sh\necho git version 2.39.5\n' >"$1/usr/bin/git"
  chmod 755 "$1/usr/bin/git"
}

# package NAME FILE fetches one .deb, without what it depends on.
package() {
  local dir
  dir=$(mktemp -d "$store/package.XXXXXX")
  (cd "$dir" && with_lists apt-get -qq -o APT::Sandbox::User=root download "$1" && mv -- *.deb "$2")
  rmdir "$dir"
}

# An image is named by what makes it: its recipe (comments do not count), the Debian and the architecture.
key() { { declare -f "recipe_$1" package; echo "$suite $arch"; } | sha256sum | cut -c 1-16; }

loaded() { # IMAGE: prints the key of the one in the engine
  docker image inspect --format '{{index .Config.Labels "carrel.dev/recipe"}}' "carrel-test/$1:1" 2>/dev/null
}

# discard ROOT removes a working directory and its tar file. debootstrap mounts /proc below it while it works: never
# remove that before it is unmounted.
discard() {
  awk '{ print $5 }' /proc/self/mountinfo | { grep -F "$1/" || true; } | sort -r | xargs -r umount -l
  rm -rf --one-file-system "$1" "$1.tar"
}

# build NAME TAR
build() {
  local log=$store/$1.log left
  may_install || unavailable "the image carrel-test/$1:1 has to be made, and $(why_not); or name one of your own in CARREL_TEST_${1^^}_IMAGE"
  # The mirror that apt uses on this machine.
  # shellcheck disable=SC2016 # the $(...) are apt's
  mirror=$(apt-get indextargets --format '$(CODENAME) $(COMPONENT) $(REPO_URI)' 'Created-By: Packages' |
    awk -v s="$suite" '$1 == s && $2 == "main" && !found { print $3; found = 1 }')
  [ -n "$mirror" ] || unavailable "apt knows no mirror for $suite main, of which the test images are made"
  command -v debootstrap >/dev/null || apt_install "the test images" debootstrap
  say "making the image carrel-test/$1:1 (log: $log)"
  for left in "$store/$1".??????; do discard "$left"; done # of a build that was killed
  root=$(mktemp -d "$store/$1.XXXXXX") # not local: the trap runs when the function is over
  trap 'discard "$root"' EXIT
  # A process of its own, because bash ignores set -e in all that a condition calls.
  if ! "$here/image.sh" make "$1" "$root" "$suite" "$mirror" >"$log" 2>&1 </dev/null; then
    tail -n 20 "$log" >&2
    unavailable "the image carrel-test/$1:1 could not be made; log: $log"
  fi
  rm -f "$store/$1"-*.tar # made by earlier recipes
  mv "$root.tar" "$2"
  discard "$root"
  trap - EXIT
}

make() { # NAME ROOT SUITE MIRROR
  suite=$3 mirror=$4
  chmod 755 "$2"
  "recipe_$1" "$2"
  tar -C "$2" --numeric-owner --exclude='./dev/*' -cf "$2.tar" .
}

load() { # NAME
  local want tar old
  want=$(key "$1")
  [ "$(loaded "$1")" != "$want" ] || return 0
  tar=$store/$1-$want.tar
  if [ ! -f "$tar" ]; then build "$1" "$tar"; fi
  old=$(docker image inspect --format '{{.Id}}' "carrel-test/$1:1" 2>/dev/null || true)
  docker import --change "LABEL carrel.dev/recipe=$want" --change 'CMD ["sh"]' \
    --change 'ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin' "$tar" "carrel-test/$1:1" >/dev/null ||
    unavailable "the engine refused the image $tar"
  [ -z "$old" ] || docker rmi "$old" >/dev/null 2>&1 || true # unless a container still uses it
}

# chosen NAME prints the user's own choice of an image, if there is one. What an earlier env.sh exported is none.
chosen() {
  local name=CARREL_TEST_${1^^}_IMAGE
  if [ "${!name:-}" != "carrel-test/$1:1" ]; then echo "${!name:-}"; fi
}

load_all() {
  local name
  # Whoever brings the main one gets none made: that may well be a machine on which none can be.
  [ -z "$(chosen sandbox)" ] || return 0
  command -v dpkg >/dev/null || unavailable "the test images are made on Debian; name one that has git, GNU coreutils, procps and python3 in CARREL_TEST_SANDBOX_IMAGE"
  suite=$(. /etc/os-release && echo "$VERSION_CODENAME")
  arch=$(dpkg --print-architecture)
  [ "$(docker version --format '{{.Server.Os}}/{{.Server.Arch}}')" = "linux/$arch" ] ||
    unavailable "the engine does not run linux/$arch, of which the test images are made"
  lock images
  mkdir -p "$store"
  for name in "${images[@]}"; do
    if [ -z "$(chosen "$name")" ]; then load "$name"; fi
  done
}

print_env() {
  local name image
  for name in "${images[@]}"; do
    image=$(chosen "$name")
    if [ -z "$image" ] && loaded "$name" >/dev/null; then image=carrel-test/$name:1; fi
    [ -z "$image" ] || printf 'export CARREL_TEST_%s_IMAGE=%q\n' "${name^^}" "$image"
  done
}

case ${1:-load} in
  load) load_all ;;
  env) print_env ;;
  make) "$@" ;; # for build
  *) say "usage: image.sh [env]"; exit 2 ;;
esac
