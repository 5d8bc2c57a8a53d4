#!/usr/bin/env bash
# What must hold before anything is tested: format, vet, lint, tidy module files, doors between packages.
set -euo pipefail
cd "$(dirname "$0")/.."

unformatted=$(gofmt -l $(git ls-files '*.go'))
if [ -n "$unformatted" ]; then
  echo "not formatted by gofmt:"
  echo "$unformatted"
  exit 1
fi
go vet ./...
go vet -tags processnamespaces ./providers/remote
GOOS=darwin go vet ./workspaces ./providers/local ./contracttest
go mod tidy -diff
for module in hack/*/; do
  [ -f "$module/go.mod" ] || continue
  go -C "$module" mod tidy -diff
done
go test -count=1 .
make --no-print-directory lint
echo "check: clean"
