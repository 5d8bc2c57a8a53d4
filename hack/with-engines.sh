#!/usr/bin/env bash
# with-engines.sh COMMAND...: runs a command with the engines that can be had, and stops those it had to start itself.
# An engine that cannot be had is said, and fails only where CARREL_REQUIRE names it.
set -euo pipefail
engines=$(cd "$(dirname "$0")" && pwd)/engines

before=$("$engines/up.sh" status)
stop() { if grep -q 'no engine answers' <<<"$before"; then "$engines/down.sh"; fi; }
trap stop EXIT
"$engines/up.sh"
eval "$("$engines/env.sh")"
"$@"
