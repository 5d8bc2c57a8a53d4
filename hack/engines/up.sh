#!/usr/bin/env bash
# up.sh: makes the engines ready that the tests run against, and says of each in one line whether it is.
# An engine that cannot be had is no failure (its tests say loudly that they were skipped), unless
# CARREL_REQUIRE names it, as CI does: CARREL_REQUIRE=docker,k8s
# up.sh status: changes nothing.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

if [ "${1:-}" = status ]; then
  for engine in "${engines[@]}"; do "$here/$engine.sh" status; done
  exit
fi

ready=,
require=${CARREL_REQUIRE:-}
for engine in "${engines[@]}"; do
  if "$here/$engine.sh" up; then ready+=$engine,; fi
done
for engine in ${require//,/ }; do
  [[ $ready == *",$engine,"* ]] || { say "required (CARREL_REQUIRE) but not ready: $engine"; failed=1; }
done
exit "${failed:-0}"
