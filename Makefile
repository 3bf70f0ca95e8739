# Tandem: everything that a developer types. `make help` explains the targets.

SHELL := /bin/bash
.DEFAULT_GOAL := help

# sudo and cron leave out where Go and the servers usually are.
export PATH := $(PATH):/usr/local/go/bin:/usr/sbin:/sbin
# Stamping asks git, which refuses a checkout of another user; versions come from LDFLAGS.
export GOFLAGS := $(strip $(shell PATH="$(PATH)" go env GOFLAGS 2>/dev/null) -buildvcs=false)

# A fixed length: git's own grows with the number of objects, which differs between clones.
VERSION ?= $(shell git describe --tags --always --abbrev=12 --dirty 2>/dev/null || echo 0.0.0-dev)
COMMIT  ?= $(shell git rev-parse HEAD 2>/dev/null || echo unknown)
# The date of the commit, not of the build: the same commit gives the same bytes.
DATE    ?= $(shell git log -1 --format=%cI 2>/dev/null || echo unknown)
LDFLAGS := -s -w -X tandem/internal/version.Version=$(VERSION) -X tandem/internal/version.Commit=$(COMMIT) -X tandem/internal/version.Date=$(DATE)
GOBUILD := CGO_ENABLED=0 go build -trimpath -ldflags '$(LDFLAGS)'

PKG ?= ./...
# One package after the other: they share two cores, one engine and the kernel. No result is taken from the cache: it knows nothing of the engine and the kernel.
TESTTIMEOUT ?= 20m
# How often `make soak` repeats each fault test.
COUNT ?= 100

# What `make bench` measures and `make vm` runs: a regular expression, of everything when empty.
RUN ?=

.PHONY: help setup build test lint bench demo run soak faults vm fuzz clean

help: ## Show this help
	@echo "Tandem: containers and processes side by side on Apache Mesos agents."
	@echo
	@awk -F ':.*## ' '/^[a-z]+:.*## /{printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo
	@echo "Variables: PKG=./api/... (test), COUNT=100 (soak), FUZZTIME=30s (fuzz), VERSION=... (build)"

setup: ## Install what is missing: C compiler, Docker Engine, CNI plugins, example servers, linter (needs root for packages)
	@scripts/setup.sh

build: ## Build static, reproducible binaries into bin/
	@mkdir -p bin
	$(GOBUILD) -o bin/ ./cmd/...

test: ## Install what is missing, then run every test with the race detector
	@scripts/setup.sh --for test
	@scripts/with-engine.sh scripts/test.sh -race -count 1 -p 1 -timeout $(TESTTIMEOUT) $(PKG)

lint: ## Run the linters; builds golangci-lint into bin/ when it is missing
	@scripts/setup.sh --for lint
	bin/golangci-lint run ./...

bench: build ## Measure against floors taken in the same run: a table, and build/bench.json
	@scripts/setup.sh --for test
	@mkdir -p build
	@go build -o build/bench ./integration/bench
	@scripts/with-engine.sh build/bench -bin bin -out build/bench.json -run '$(RUN)'

demo: ## Install what is missing, build, run the examples on the embedded stack, show what happens, clean up
	@scripts/setup.sh --for demo
	@$(MAKE) --no-print-directory build
	@scripts/with-engine.sh scripts/demo.sh

run: ## Build and leave the whole stack running on this machine; Ctrl-C stops it
	@scripts/setup.sh --for demo
	@$(MAKE) --no-print-directory build
	@scripts/with-engine.sh bin/tandem local --agents 3 --attributes 'zone:a;rack:r1' --attributes 'zone:b;rack:r2' --attributes 'zone:c;rack:r3'

soak: ## Repeat the fault tests COUNT times (a long run; not part of `make test`)
	@scripts/setup.sh --for test
	@scripts/with-engine.sh scripts/test.sh -timeout 12h -count $(COUNT) -failfast -run 'Fault' ./integration/...

faults: ## Kill the executor, the process daemon and its keeper at every counted step and call: one line a path (minutes)
	@scripts/setup.sh --for test
	@TANDEM_FAULTS_EVERY=1 scripts/with-engine.sh scripts/test.sh -timeout 2h -count 1 -p 1 -run '^TestFaultPoints' ./integration/

vm: ## Boot a Debian with systemd and cgroups v2 in a virtual machine and run there what needs them (minutes; RUN=... chooses tests)
	@scripts/vm.sh $(if $(RUN),-run '$(RUN)')

FUZZTIME ?= 30s
fuzz: ## Run every fuzz target for FUZZTIME
	@scripts/fuzz.sh $(FUZZTIME)

clean: ## Remove what was built
	rm -rf bin build
