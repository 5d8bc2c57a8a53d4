# The commands of this repository; `make` alone explains them.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

CACHE ?= $(or $(CARREL_CACHE),$(or $(XDG_CACHE_HOME),$(HOME)/.cache)/carrel)
LINT := $(CACHE)/bin/golangci-lint-$(shell sed -n 's|.*golangci-lint/v2 v\([0-9.]*\).*|\1|p' hack/lint/go.mod 2>/dev/null | head -n 1)
N ?= 20
PROVIDER ?= local
PKG ?= ./...
MODULE := github.com/carrel-dev/carrel

.PHONY: help
help: ## this list
	@awk -F':.*## ' '/^[a-z0-9-]+:.*## /{printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: demo
demo: ## an agent reproduces and fixes a bug with a scripted model, offline (PROVIDER=local or docker, IMAGE=...)
	@$(if $(filter local,$(PROVIDER)),,hack/with-engines.sh) hack/demo.sh $(PROVIDER) $(IMAGE)

.PHONY: test
test: ## all tests under the race detector, real engines included where they can be had
	@hack/with-engines.sh hack/test.sh

.PHONY: check
check: ## gofmt, vet, lint, tidy and the doors between packages
	@hack/check.sh

.PHONY: lint
lint: $(LINT) ## the linter alone
	$(LINT) run

$(LINT):
	@echo "building the linter, once (some minutes)"
	@mkdir -p $(dir $(LINT))
	@go -C hack/lint build -o $(LINT) github.com/golangci/golangci-lint/v2/cmd/golangci-lint

.PHONY: flake
flake: ## the tests N times (N=20 PKG=./...), and which of them did not always pass
	@hack/with-engines.sh hack/flake.sh $(N) $(PKG)

.PHONY: cases
cases: ## the cases of the contract, and what each deliberately broken provider fails
	@go test ./contracttest -run 'TestCases|TestBrokenProviders' -count=1 -v | grep -v '^=== '

.PHONY: fuzz
fuzz: ## every fuzz target for FUZZTIME (20s)
	@hack/fuzz.sh $(or $(FUZZTIME),20s)

.PHONY: bench
bench: ## the benchmarks, carrel beside what it is compared with
	@hack/with-engines.sh go test -run '^$$' -bench . -benchtime 2s ./workspaces ./providers/...

.PHONY: figures
figures: ## figures: memory through 1 GiB of output, Ctrl-C in a long command, a background server
	@go run ./examples/figures

.PHONY: engines-up
engines-up: ## start the engines that the tests use
	@hack/engines/up.sh

.PHONY: engines-down
engines-down: ## stop what engines-up started
	@hack/engines/down.sh
