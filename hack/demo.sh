#!/usr/bin/env bash
# demo.sh PROVIDER [IMAGE]: the repro-agent on its bundled repository. In a container it takes the image that is named,
# else the one that the tests made, else the provider's.
set -euo pipefail
cd "$(dirname "$0")/.."
image=${2:-}
if [ "$1" != local ]; then image=${image:-${CARREL_TEST_SANDBOX_IMAGE:-}}; fi
exec go run ./examples/repro-agent -provider "$1" ${image:+-image "$image"}
