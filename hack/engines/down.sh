#!/usr/bin/env bash
# down.sh: stops the engines that up.sh started. What is costly to make (images, binaries) stays in the cache.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

for ((i = ${#engines[@]} - 1; i >= 0; i--)); do # the last one up leans on the others
  "$here/${engines[i]}.sh" down || failed=1
done
exit "${failed:-0}"
