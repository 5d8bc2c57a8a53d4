#!/usr/bin/env bash
# All tests, under the race detector. `make test` runs it with the real engines that can be had.
#   CARREL_ENGINES=off             start no engine
#   CARREL_REQUIRE=docker,k8s,...  fail when one of these is missing; nothing may be skipped then
set -euo pipefail
cd "$(dirname "$0")/.."

report=$(mktemp -d)
trap 'rm -rf "$report"' EXIT
go -C hack/testreport build -o "$report/testreport" .
# -timeout is a watchdog for a hang, not a measure.
{ go test -race -count=1 -timeout 40m -json ./... 2>&1 || true; } |
  "$report/testreport" -module github.com/carrel-dev/carrel -rules docs/rules.md -require "${CARREL_REQUIRE:-}"
