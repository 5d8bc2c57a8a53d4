#!/usr/bin/env bash
# env.sh prints where the engines that are up can be found: eval "$(hack/engines/env.sh)"
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

for engine in "${engines[@]}"; do "$here/$engine.sh" env; done
