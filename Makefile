# Everything is one command each; CI runs the same ones. `make help` lists them.

GO      ?= go
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS  = -s -w -X main.version=$(VERSION)
WEB_SRC  = $(shell find web/src web/public web/index.html web/tsconfig.json web/package.json web/package-lock.json web/generate/package.json web/vite.config.ts 2>/dev/null)

.PHONY: help build dist run run-cluster test test-go test-web docs-test e2e screens race lint vet-all bench bench-cluster bench-page gate attack chaos takeover fuzz generate web clean

help: ## list the commands
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-13s %s\n", $$1, $$2}'

build: web ## build bin/lapwing, with the web page if Node is there
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '$(LDFLAGS)' -o bin/lapwing ./cmd/lapwing

# Hosts that agents run on; a backend is tested on Linux only.
SYSTEMS = linux/amd64 linux/arm64 linux/arm windows/amd64 darwin/arm64 darwin/amd64 freebsd/amd64

# FIPS=1 has Go's certified cryptographic module in them, as it was certified, in FIPS 140-3 mode: see docs/install.md.
FIPS ?=
GOFIPS140 ?= $(if $(FIPS),v1.0.0,off)

dist: web ## build static binaries for all systems into dist/, the whole and the agent alone, with checksums, man pages and completion files, and show sizes; FIPS=1 for FIPS 140-3
	@rm -rf dist && mkdir dist
	@for s in $(SYSTEMS); do for what in lapwing lapwing-agent; do \
	  os=$${s%/*}; arch=$${s#*/}; out=dist/$$what-$$os-$$arch; tags=; [ $$os != windows ] || out=$$out.exe; [ $$what = lapwing ] || tags=agentonly; \
	  CGO_ENABLED=0 GOFIPS140=$(GOFIPS140) GOOS=$$os GOARCH=$$arch GOARM=6 $(GO) build -tags "$$tags" -trimpath -ldflags '$(LDFLAGS)' -o $$out ./cmd/lapwing || exit 1; \
	  printf '%-36s %4d MiB\n' $$out $$(($$(wc -c <$$out) >> 20)); \
	done; done
	@CGO_ENABLED=0 GOFIPS140=$(GOFIPS140) $(GO) run -trimpath -ldflags '$(LDFLAGS)' ./cmd/lapwing man --dir dist
	@cd dist && if command -v sha512sum >/dev/null; then sha512sum lapwing-*; else shasum -a 512 lapwing-*; fi >SHA512SUMS
	@echo "dist/SHA512SUMS has their checksums; dist/man and dist/completion are for all systems; packaging/ has units for systemd and configuration files"

run: build ## start a backend and an agent with sample checks in ./data; Ctrl-C stops all
	@exec bin/lapwing demo --dir data

run-cluster: build ## the same with three backends in ./data-cluster; one may be killed
	@exec bin/lapwing demo --backends 3 --dir data-cluster

web: web/dist/index.html ## build the web page (needs Node 20; without it the binary works and says so)

web/dist/index.html: $(WEB_SRC)
	@if command -v npm >/dev/null; then \
	  cd web && npm ci --no-audit --no-fund --loglevel=error && npm run --silent build; \
	else echo "npm is not installed: building without the web page"; fi

# Tests wait more than they compute: two packages more at a time than there are cores, and twice as many tests of a package.
CORES      := $(shell getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)
TEST_FLAGS ?= -p $(shell echo $$(($(CORES) + 2))) -parallel $(shell echo $$(($(CORES) * 2)))
# TAGS=long has the tests whole; see internal/longtest.
TAGS ?=

test: lint test-go test-web ## run the tests; TAGS=long adds the long ones (storm, soak, partition, all damage), as CI does

# ./test takes longest, so it begins first. The race detector watches all packages but the cipher behind password hashes, where it
# would take half of all CPU.
test-go: web
	$(GO) test -race -gcflags=golang.org/x/crypto/blowfish=-race=false -tags "$(TAGS)" -timeout 60m $(TEST_FLAGS) ./test ./...

docs-test: ## run or check each block of code of README.md and docs/*.md, and print what was done with each
	$(GO) test -count 1 -v -run '^TestDocs' ./cmd/lapwing

test-web: web
	@if command -v npm >/dev/null; then cd web && npm run --silent check-generated && npm run --silent check-format && npm run --silent typecheck && npm run --silent test; \
	else echo "npm is not installed: the web page's tests are left out"; fi

e2e: build ## test the web page in Chromium, on backends and agents of its own
	cd web && npm run --silent e2e

screens: build ## take the pictures of docs/screens, as the tests of the web page see the screens
	cd web && LAPWING_SCREENS=1 npm run --silent screens

bench-page: build ## measure the web page in Chromium on a backend with 40,000 entities, 400,000 events and 5,000 results a second (10 minutes; the machine should be quiet)
	node web/e2e/scale.mjs

lint: ## gofmt, vet, staticcheck, and the project's own rules (import direction and others)
	@test -z "$$(gofmt -l $$(git ls-files '*.go'))" || { gofmt -l $$(git ls-files '*.go'); echo "run gofmt"; exit 1; }
	$(GO) vet ./...
	$(GO) vet -tags "long attack" ./internal/longtest ./test/...
	$(GO) tool staticcheck ./...
	$(GO) tool staticcheck -tags "long attack" ./internal/longtest ./test/...
	$(GO) test ./internal/lint
	@$(MAKE) --no-print-directory vet-all

# What an agent needs; the service of Windows is in cmd/lapwing.
AGENT_PKGS = ./agent/... ./asset ./internal/hostfacts ./internal/proc ./internal/tlsfiles ./schedule/timetable ./substitute ./wire

vet-all: ## vet what runs on hosts for all systems that it runs on, tests too
	@for s in $(filter-out linux/amd64 linux/arm64 darwin/amd64,$(SYSTEMS)); do \
	  os=$${s%/*}; pkgs='$(AGENT_PKGS)'; [ $$os != windows ] || pkgs="$$pkgs ./cmd/lapwing"; \
	  echo "vet for $$s"; CGO_ENABLED=0 GOOS=$$os GOARCH=$${s#*/} $(GO) vet $$pkgs || exit 1; \
	done
	$(GO) vet -tags agentonly ./cmd/lapwing
	$(GO) vet -tags attack ./test/attack

bench: build ## run the micro-benchmarks, then a two-minute load; figures that matter are kept in bench/results
	$(GO) test -run '^$$' -bench . -benchmem -count 3 ./test ./resource ./wire ./pipeline ./schedule ./internal/wheel ./session ./agent
	bench/two-minutes

BENCH_FLAGS ?=
bench-cluster: build ## play 40,000 agents on a cluster of three backends; BENCH_FLAGS="--check-interval 10s" doubles the load (12 minutes)
	bench/three-backends --scenario bench/scenarios/cluster-40k.yaml $(BENCH_FLAGS)

gate: ## fail when an event costs a quarter more CPU, or more allocations, than test/testdata/gate.json says
	LAPWING_GATE=check $(GO) test -count 1 -v -run TestCostGate ./test

attack: ## run the attacks of test/attack on a backend with a healthy agent beside it, and print a table (minutes; the machine should be quiet)
	$(GO) test -tags attack -count 1 -timeout 30m -v ./test/attack

SCHEDULES ?= 200
# More arguments, for example CHAOS_FLAGS="-seed 17 -faults kill,slow"; see test/chaos/README.md.
CHAOS_FLAGS ?=
chaos: ## play SCHEDULES (default 200) random schedules of faults on three backends, as root, and check what they promised (85 s each)
	$(GO) run ./test/chaos -members 3 -schedules $(SCHEDULES) $(CHAOS_FLAGS)

# More arguments, for example TAKEOVER_FLAGS="-agents 300 -kills 2 -stops 2"; see test/takeover/README.md.
TAKEOVER_FLAGS ?=
takeover: ## kill, stop and restart members of a cluster under 3,000 agents, and print how long each takeover takes (an hour; the machine should be quiet)
	$(GO) run ./test/takeover $(TAKEOVER_FLAGS)

FUZZTIME ?= 10s
fuzz: ## run each fuzz target for FUZZTIME (default 10s; 1000x is so many inputs)
	@for pkg in $$($(GO) list ./...); do \
	  for f in $$($(GO) test -list '^Fuzz' $$pkg | grep '^Fuzz'); do \
	    echo "$$pkg $$f"; $(GO) test -run '^$$' -fuzz "^$$f$$" -fuzztime $(FUZZTIME) $$pkg || exit 1; \
	  done; done

generate: ## write generated code again: protobuf, the OpenAPI document, and the types of the Go client and of the web page
	$(GO) generate ./...
	@if command -v npm >/dev/null; then cd web && npm ci --no-audit --no-fund --loglevel=error && npm run --silent generate; \
	else echo "npm is not installed: web/src/api/schema.d.ts is not written"; fi

clean: ## remove what was built
	rm -rf bin dist web/dist/assets web/dist/index.html web/node_modules web/generate/node_modules
