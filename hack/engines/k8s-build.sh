#!/usr/bin/env bash
# k8s-build.sh: builds the Kubernetes of k8s/go.mod (API server, controller manager, scheduler, kubelet) from source,
# once per version, and prints the directory of the binaries. No registry has to be reached but that of Go modules.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

engine=k8s
command -v go >/dev/null || unavailable "Kubernetes is built from source, and there is no go"
version=$(sed -n 's#^require k8s.io/kubernetes v\([^ ]*\).*#\1#p' "$here/k8s/go.mod")
dir=$cache/k8s/bin-$version
lock k8s-build

if [ ! -d "$dir" ]; then
  mkdir -p "$cache/k8s"
  log=$cache/k8s/build.log
  say "building Kubernetes $version, once: about 5 minutes on 2 cores (log: $log)"
  part=$(mktemp -d "$cache/k8s/build.XXXXXX")
  trap 'rm -rf "$part"' EXIT
  chmod 755 "$part"
  # Upstream's build stamps the version; without one the API server takes its own feature gates for unknown.
  stamp=k8s.io/component-base/version
  minor=${version#*.}
  # A build in a workspace of the user's (go.work) would look for this module there.
  (cd "$here/k8s" && GOWORK=off CGO_ENABLED=0 go build -trimpath -buildvcs=false -o "$part/" \
    -ldflags "-s -w -X $stamp.gitVersion=v$version -X $stamp.gitMajor=${version%%.*} -X $stamp.gitMinor=${minor%%.*}" \
    tool) >"$log" 2>&1 </dev/null 9>&- || {
    tail -n 20 "$log" >&2
    unavailable "Kubernetes could not be built; log: $log"
  }
  mv "$part" "$dir"
fi
echo "$dir"
