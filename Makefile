# Plain `make` prints the targets. `make test` and `make run` need Go alone; `make check` is what CI adds.

GO = go
# Tests build what ships: without C, and without the C linker, which takes longer than the rest of a test's build. The race
# detector alone needs C.
export CGO_ENABLED = 0
# Everything that is not shipped runs at a pinned version and stays out of go.mod.
BENCHSTAT = $(GO) run golang.org/x/perf/cmd/benchstat@v0.0.0-20260908200009-22c9c6c9d4da
GOLANGCI = $(GO) run github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
# Settings for one call, as in `make run ARGS='--log-level debug'`.
ARGS =
BENCH =
GOBENCH = .
N = 300
SEED = 1
STEPS = 1000
PLAY =
KEEP =
TRACE = 0
MINUTES = 10
EVERY = 1
FIRST = 0
FUZZTIME = 1s
SOAKFUZZ = 1h

.POSIX:
.NOTPARALLEL:
.PHONY: help build run test long race lint layers race-short check golden interop browser screens fuzz sim soak cluster-soak canary crash nightly bench bench-go bench-cmp bench-base peers packages proto proto-current clean

help: ## print this list
	@echo 'usage: make TARGET [NAME=value]'
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-13s %s\n", $$1, $$2 }' Makefile

# Without cgo the program is one static file, the same with and without a C compiler on the machine. It has no tables for
# debuggers (-s -w), which are a third of it: stacks of panics and profiles still have functions, files and lines.
build: ## compile bin/treadle, with the version from git
	@version=$$(git describe --tags --always --dirty 2>/dev/null || echo unknown); set -x; \
	$(GO) build -trimpath -buildvcs=false -ldflags "-s -w -X main.version=$$version" -o bin/treadle ./cmd/treadle

run: build ## build, then serve on the default addresses; settings in ARGS="..."
	@exec bin/treadle serve $(ARGS)

# Many tests wait for time-outs and processes: more packages and tests at a time than processors keep the processors busy.
# The simulation looks into the server at each step, which is in builds with the invariants tag alone.
test: ## the tests and a short simulation; needs Go alone
	$(GO) test -short -p 4 -parallel 8 ./...
	$(GO) test -short -tags invariants ./fuzz/sim

# The tests that -short leaves out or cuts short: long_test.go holds the list against the source.
LONG = TestAddedProtocol|TestBackwardEdges|TestClockSteps|TestClusterFullDisk|TestClusterHistories|TestClusterNamespaces|TestClusterReconnects|TestConvertKilled|TestCorruptLog|TestCorruptTable|TestDisbatchTaskRunners|TestDworkKilled|TestEveryGloomAction|TestFaultAtEveryOperation|TestFlips|TestFlipsInManyLogs|TestFullDocuments|TestGraphBounds|TestHostile|TestHostileDisbatch|TestInvalidDocuments|TestKts46DefinitionsTakeNoMemory|TestLargeJobsAreLetGo|TestLargeOutputGoesToGridFS|TestListText|TestLockOfNextHolder|TestLongLockLineIsDropped|TestLongestHold|TestLostSyncAtEveryOperation|TestManyClashes|TestMaxMemory|TestMemoryPressure|TestMillionJobs|TestMovedRef|TestNoLostWakeupFail|TestNoLostWakeupFlushed|TestNoLostWakeupLock|TestNoLostWakeupReserve|TestNoLostWakeupSleep|TestNoLostWakeupWatch|TestNoTaskIsClaimedTwice|TestPauseCut|TestPolicyHold|TestPowerLoss|TestRepairFails|TestRepeatedPredecessorCost|TestSimulation|TestSimulationRepeats|TestSimulationSite|TestThousandConnections|TestTornAndZeroedTails|TestWorkEndsOnTime
# Those of them that take longest: nightly runs them, check does not.
NIGHTLY = TestClusterHistories|TestFlips|TestGraphBounds|TestPowerLoss
LONG_IN = ./cmd/treadle ./loop/... ./sched
long: ## the tests in the length that -short spares, but for those that take longest
	$(GO) test -p 4 -parallel 8 -run '^($(LONG))$$' -skip '^($(NIGHTLY))$$' $(LONG_IN)
	$(GO) test -tags invariants -run '^($(LONG))$$' ./fuzz/sim

# The longest holds of sched's locks are counted in one goroutine, where the detector finds nothing and takes most of an
# hour. `make test` and `make long` have them.
ONE_GOROUTINE = '^Test(PolicyHold|LongestHold|LongestListHold)$$'
race: ## all tests with the race detector and the invariants checked, but for those that count in one goroutine; needs a C compiler
	CGO_ENABLED=1 $(GO) test -race -timeout 1h -skip $(ONE_GOROUTINE) -tags invariants ./...

lint: ## gofmt, golangci-lint, which has go vet, and go vet with the invariants tag
	@files=$$("$$($(GO) env GOROOT)/bin/gofmt" -l .) || exit 1; \
	test -z "$$files" || { echo "not formatted with gofmt:"; echo "$$files"; exit 1; }
	$(GO) vet -tags invariants ./...
	$(GOLANGCI) run ./...

# A renamed test must not turn this into a check of nothing.
layers: ## the test of who may import whom
	@$(GO) test -list Layer ./cmd/treadle | grep '^Test' >/dev/null || { echo "./cmd/treadle has no layers test, or does not build"; exit 1; }
	$(GO) test -count=1 -run Layer ./cmd/treadle

# The tests of cmd/treadle and bench start programs, which are built without the detector, and the simulation plays in one
# goroutine at a time: the detector would make them slow and find next to nothing. The tests of
# Disbatch's packages wait for a fake MongoDB, which takes minutes with it. `make race` has them all the same.
race-short: ## the short tests with the race detector and the invariants checked, but for those of programs, of Disbatch, of the journal and the simulation
	CGO_ENABLED=1 $(GO) test -race -short -skip $(ONE_GOROUTINE) -tags invariants $$($(GO) list ./... | grep -v -e /cmd/treadle -e /bench$$ -e /fuzz/sim -e /loop/disbatch/ -e /loop/journal$$)

check: lint layers proto-current long race-short interop fuzz ## what CI runs after the tests: lint, layers, generated code, long tests, short race, interop, FUZZTIME=1s of each fuzz target

golden: ## rewrite the golden transcripts of ./loop, ./loop/dwork, ./loop/kts46 and ./loop/disbatch/web, and loop/admin/openapi.json; read the diff before you keep it
	$(GO) test ./loop ./loop/dwork ./loop/kts46 ./loop/disbatch/web -run Golden -args -rewrite
	$(GO) test ./loop/admin -run 'TestOpenAPI$$' -args -rewrite

# The generator is a module of its own, with protobuf's compiler and generator at pinned versions: no protoc is needed.
proto: ## write the code of codec/dwork/dwork.proto anew
	code=$$(mktemp) && ( cd codec/dwork/gen && $(GO) run . ) >"$$code" && cat "$$code" >codec/dwork/dworkpb/dwork.pb.go; \
	status=$$?; rm -f "$$code"; exit $$status

proto-current: ## check that the generated code is what `make proto` would write
	@code=$$(mktemp) && ( cd codec/dwork/gen && $(GO) run . ) >"$$code" && cmp "$$code" codec/dwork/dworkpb/dwork.pb.go; \
	status=$$?; rm -f "$$code"; test $$status = 0 || echo "the code of dwork.proto is not current: run make proto"; exit $$status

# The clients are a module of their own, so that go.mod holds only what ships.
interop: build ## clients that others wrote, against the built server, Disbatch on FerretDB and MongoDB's shell, promtool; needs gcc, libzmq3-dev, python3-zmq, prometheus, php-pda-pheanstalk, ruby-beaneater, npm
	cd bench/interop && $(GO) vet ./... && TREADLE_BINARY="$(CURDIR)/bin/treadle" $(GO) test -count=1 ./...
	cd loop/disbatch/interop && $(GO) vet ./... && TREADLE_BINARY="$(CURDIR)/bin/treadle" $(GO) test -count=1 ./...

# The tests are a module of their own. axe-core comes from npm, for the tests alone; Chromium is Debian's chromium. They
# take some minutes on two cores, of which `make check` has none to spare.
AXE = 4.14.1
AXE_FILE = bin/axe-$(AXE).js
$(AXE_FILE):
	mkdir -p bin/axe && cd bin/axe && npm pack --silent axe-core@$(AXE) && tar xzf axe-core-$(AXE).tgz
	mv bin/axe/package/axe.min.js $@ && rm -r bin/axe

BROWSER = cd loop/page/browser && TREADLE_BINARY="$(CURDIR)/bin/treadle" $(GO) test -count=1
browser: build $(AXE_FILE) ## the pages in Chromium: the story of a user with a mouse, a keyboard, a telephone, a zoom and no scripts, axe-core, hostile content; needs chromium, npm
	cd loop/page/browser && $(GO) vet ./...
	$(BROWSER) -parallel 3 . -args -axe "$(CURDIR)/$(AXE_FILE)"

screens: build ## write pictures of the pages to bench/results/screens, after five minutes of the demo
	mkdir -p bench/results/screens
	$(BROWSER) -timeout 20m -run '^TestScreens$$' . -args -screens "$(CURDIR)/bench/results/screens" -screens.after 5m

# Go 1.26 sometimes reports the end of -fuzztime itself as a failure (golang/go#75804): one line "context deadline
# exceeded" and no input. That alone passes; a failing input, seed, subtest, panic or lost worker never does.
# Inputs are made shorter for a second each, not for Go's minute: the targets that play whole sessions would do nothing else.
# There is one program for each package: linking one for each target took as long as the fuzzing.
fuzz: ## every fuzz target of every package, one after the other, FUZZTIME=1s each
	@packages=$$(grep -rl --include='*_test.go' '^func Fuzz' . | xargs -r -n 1 dirname | sort -u); \
	test -n "$$packages" || { echo "no fuzz target"; exit 1; }; \
	dir=$$(mktemp -d) || exit 1; trap 'rm -rf "$$dir"' EXIT; trap 'exit 130' INT TERM; \
	for package in $$packages; do \
		$(GO) test -tags invariants -c -fuzz . -o "$$dir/fuzz.test" $$package || exit 1; \
		inputs=$$($(GO) env GOCACHE)/fuzz/$$($(GO) list $$package); \
		targets=$$(cd $$package && "$$dir/fuzz.test" -test.list '^Fuzz') || { echo "$$targets"; exit 1; }; \
		targets=$$(echo "$$targets" | grep '^Fuzz') || { echo "no fuzz target in $$package"; exit 1; }; \
		for target in $$targets; do \
			echo "fuzz $$target of $$package for $(FUZZTIME)"; \
			rm -f "$$dir/passed"; \
			{ ( cd $$package && "$$dir/fuzz.test" -test.run '^$$' -test.fuzz "^$$target\$$" -test.fuzztime $(FUZZTIME) -test.fuzzminimizetime 1s -test.fuzzcachedir "$$inputs" 2>&1 ) && \
				touch "$$dir/passed" || true; } | tee "$$dir/log"; \
			if test -e "$$dir/passed"; then continue; fi; \
			grep -q '^    context deadline exceeded$$' "$$dir/log" || exit 1; \
			if grep -Eq 'Failing input|seed corpus|panic|--- FAIL: .*/|hung or terminated' "$$dir/log"; then exit 1; fi; \
			echo "fuzz $$target: the time was over, no failing input"; \
		done; \
	done

sim: ## play one seed of the simulation and print what it came to: SEED=1 STEPS=1000, PLAY=Site for a Disbatch site, KEEP= as a failure says, TRACE=1 to print all that happens
	@$(GO) test -tags invariants ./fuzz/sim -count=1 -v -run '^TestSimulation$(PLAY)$$' -args -sim.seed $(SEED) -sim.steps $(STEPS) -sim.keep '$(KEEP)' -sim.trace=$(TRACE) 2>&1 | \
		awk '/^(=== RUN|ok |PASS|--- PASS)/ || /sim_test.go:[0-9]*: [0-9]+ seeds/ { next } { print } /^(--- )?FAIL/ { bad = 1 } END { exit bad }'

# New seeds each time: the first is taken from the clock, and every failure names its own.
soak: build ## what the tests do for moments, for long: kills with histories judged, hostile peers, random commands to Faktory and Treadle, new seeds of the simulation for MINUTES=10, SOAKFUZZ=1h of each fuzz target
	$(GO) test ./cmd/treadle -count=1 -timeout 2h -v -run '^TestLinearizable(Policies)?$$' -args -linear.n 200 -linear.seed $$(date +%s)
	$(GO) test ./cmd/treadle -count=1 -timeout 2h -v -parallel 1 -run '^TestHostile(Disbatch)?$$' -args -hostile.scale 20
	cd bench/interop && TREADLE_BINARY="$(CURDIR)/bin/treadle" $(GO) test -count=1 -timeout 2h -v -run '^TestFaktory(Captured|Random|Import)$$' -args -faktory.original -faktory.sequences 300
	$(GO) test -tags invariants ./fuzz/sim -count=1 -timeout 0 -v -run '^TestSimulation$$' -args -sim.from $$(date +%s)000 -sim.for $(MINUTES)m
	$(GO) test -tags invariants ./fuzz/sim -count=1 -timeout 0 -v -run '^TestSimulationSite$$' -args -sim.from $$(date +%s)000 -sim.for $(MINUTES)m
	$(MAKE) fuzz FUZZTIME=$(SOAKFUZZ)

# With SEED= the faults come in the same order; what the peers do besides depends on the machine.
cluster-soak: ## three nodes under faults at random for MINUTES=10, with clients of all protocols but kts46 and histories judged
	$(GO) test ./cmd/treadle -count=1 -timeout 0 -v -run '^TestClusterHistories$$' -args -cluster.for $(MINUTES)m -cluster.seed $(SEED)

canary: ## plant bugs in the server, one at a time, and see that the simulation finds each; EVERY=3 FIRST=0, 1 or 2: a third
	$(GO) test -tags canary ./fuzz -count=1 -timeout 3h -v -run '^TestCanary$$' -args -canary.every $(EVERY) -canary.first $(FIRST)

crash: ## kill the built server under load N=300 times and audit what it acknowledged; SEED=
	$(GO) test ./cmd/treadle -count=1 -timeout 2h -v -run 'TestCrash$$' -args -crash.n $(N) -crash.seed $(SEED)

# Two hours on two idle cores. All planted bugs are played in three nights.
nightly: race crash browser ## what is too long for check: everything with the race detector, the longest tests, a third of the planted bugs, crash, the pages in a browser, a soak with 20 seconds of each fuzz target, and one of a cluster
	$(MAKE) long LONG='$(NIGHTLY)' NIGHTLY=
	$(MAKE) canary EVERY=3 FIRST=$$(( $$(date +%s) / 86400 % 3 ))
	$(MAKE) soak SOAKFUZZ=20s MINUTES=5
	$(MAKE) cluster-soak

bench: build ## load the built server and every peer on PATH over real sockets; flags in BENCH="..."
	PATH="$$PATH:$$($(GO) env GOPATH)/bin" $(GO) run ./bench $(value BENCH)

bench-go: ## Go micro-benchmarks with allocations; a pattern in GOBENCH=...
	$(GO) test -run '^$$' -bench '$(value GOBENCH)' -benchmem ./...

# The benchmarks that run on any machine alike: one processor, as many operations each time, no disk, no network. One
# operation's allocations are the same everywhere; its time is only shown.
BENCHED = -run '^$$' -bench . -skip 'Memory|Generated|EncodingJSON|BackwardEdge' -cpu 1 -benchtime 10000x -count 6 -benchmem ./codec/... ./sched ./loop

bench-base: ## write bench/baseline.txt anew; the commit says why an operation may allocate more
	$(GO) test $(BENCHED) >bench/results/new.txt || { cat bench/results/new.txt; exit 1; }
	grep -E '^(goos|goarch|pkg|Benchmark)' bench/results/new.txt >bench/baseline.txt

bench-cmp: ## Go benchmarks beside bench/baseline.txt; fails when an operation allocates more often
	$(GO) test $(BENCHED) >bench/results/new.txt || { cat bench/results/new.txt; exit 1; }
	$(BENCHSTAT) -ignore goos,goarch,cpu bench/baseline.txt bench/results/new.txt
	@$(BENCHSTAT) -ignore goos,goarch,cpu -format csv -filter '.unit:allocs/op' bench/baseline.txt bench/results/new.txt 2>/dev/null | awk -f bench/allocs.awk

packages: ## make packages for Debian and Red Hat, and static archives, in bin/packages
	cmd/treadle/package/build.sh

peers: ## install the servers that bench compares with (Debian, root or sudo; Faktory with Go)
	@as_root=; test "$$(id -u)" = 0 || as_root=sudo; set -ex; \
	$$as_root apt-get update; \
	$$as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends \
		beanstalkd gearman-job-server redis-server
	cd bench/interop && $(GO) install github.com/contribsys/faktory/cmd/faktory

clean: ## remove what the targets above leave behind; never a data directory
	rm -rf bin
	rm -f bench/results/latest.json bench/results/latest.html bench/results/new.txt
	find . -type f \( -name '*.test' -o -name '*.prof' \) ! -path './.git/*' -exec rm -f {} +
