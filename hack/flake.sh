#!/usr/bin/env bash
# Runs the tests N times and says which of them did not always pass.
set -euo pipefail
cd "$(dirname "$0")/.."
n=${1:-20} packages=${2:-./...}

log=$(mktemp -d)
trap 'rm -rf "$log"' EXIT
go -C hack/testreport build -o "$log/testreport" .
for i in $(seq "$n"); do
  if go test -race -count=1 -timeout 40m -json $packages > "$log/json" 2>&1; then
    echo "run $i of $n: passed"
  else
    echo "run $i of $n: FAILED"
    "$log/testreport" -module github.com/carrel-dev/carrel < "$log/json" | tee -a "$log/failed" || true
  fi
done
if [ -s "$log/failed" ]; then
  echo "flaked:"
  grep -E '^--- FAIL' "$log/failed" | awk '{print $3, $4}' | sort | uniq -c | sort -rn
  exit 1
fi
echo "no flake in $n runs"
