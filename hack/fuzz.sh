#!/usr/bin/env bash
# Runs every fuzz target of the module for the given time.
set -euo pipefail
cd "$(dirname "$0")/.."
time=${1:-20s}
for file in $(git grep -lE '^func Fuzz' -- '*_test.go'); do
  for target in $(sed -nE 's/^func (Fuzz[A-Za-z0-9_]+).*/\1/p' "$file"); do
    echo "== $(dirname "$file") $target"
    go test "./$(dirname "$file")" -run '^$' -fuzz "^$target\$" -fuzztime "$time"
  done
done
