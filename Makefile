# The task runner. `make help` lists the targets; it needs only Python 3.11+, git and make.
PYTHON  ?= python3
VENV    ?= .venv
SPARK_VENV ?= .venv-spark
AUDIT_VENV ?= .venv-audit
PEERS_VENV ?= .venv-peers
FUZZ_VENV ?= .venv-fuzz
DOCS_VENV ?= .venv-docs
LAKEHOUSE_VENV ?= .venv-lakehouse
RELEASE_VENV ?= .venv-release
WORKERS ?= $(shell $(PYTHON) -c 'import os; print(2 * (os.cpu_count() or 1))')

# Each of the thousand processes that tests start would compile the package anew.
unexport PYTHONDONTWRITEBYTECODE

BIN := $(VENV)/bin
PY  := $(BIN)/python
PYTEST := $(PY) -m pytest -q -n $(WORKERS) --dist loadgroup --ignore tests/unit/spark

# Folders that hold Python today.
CODE := $(strip $(foreach folder,src tests benchmarks checker examples models simulation tools,\
          $(if $(shell find $(folder) -name '*.py' 2>/dev/null | head -n 1),$(folder))))

# Packages that require a branch coverage of COVERED_MIN per cent (Cassandra, PostgreSQL and Redis need a server).
COVERED_MIN := 95
empty :=
comma := ,
COVERED := $(subst $(empty) $(empty),$(comma),$(patsubst %,*/dueline/%/*.py,core tasks limits workflows \
             coordination log jobs streams schedules admin stores stores/memory stores/sqlite) checker/*.py)

# Folders whose tests are all long, and what has mutants: others need not be imported for them.
LONG_FOLDERS := kills simulation integration/failures integration/moving
MUTANT_TESTS := mutants simulation stores/test_laws_notice.py

# Short forms of `make kills`, which CI runs too.
SHORT_KILLS := $(addprefix tests/kills/,test_loop.py test_writers.py power/test_losses.py)

# Size of the kill test on a Cassandra ring, whose nodes fail too.
CASSANDRA_KILLS ?= NODES=3 KILLS=3 PAUSES=0 JOBS=120 STRIKES=2
# Size of the kill test on a PostgreSQL server, which fails too.
POSTGRES_KILLS ?= KILLS=20 PAUSES=2 JOBS=800 STRIKES=11
# Size of the kill test on a Redis server, which fails too.
REDIS_KILLS ?= KILLS=10 PAUSES=1 JOBS=800 STRIKES=11
# Sizes with jumping wall clocks, and with a disk that is full or stands still.
JUMPING_KILLS ?= KILLS=5 PAUSES=0 JOBS=1000
FULL_DISK_KILLS ?= KILLS=1 PAUSES=0 JOBS=800 FILLS=2
SILENT_DISK_KILLS ?= KILLS=1 PAUSES=0 JOBS=800 FREEZES=5

# The node of `make guard`, next to a developer's own ring.
GUARD_DIR := .cache/cassandra/guard
GUARD_FIRST := 131

.DEFAULT_GOAL := help
.PHONY: format release lint-files test-one watch help demo demo-spark test test-all collect test-lakehouse test-spark test-pythons check reference structure models mutants planted simulate calls guard kills versions appends products fuzz bench bench-postgres bench-docs figures bench-spark cassandra-up cassandra-down postgres-up postgres-down redis-up redis-down lock vulnerabilities docs docs-serve pictures screenshots words clean

help: ## list the targets
	@grep -hE '^[a-z][a-z-]*:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 16

demo: $(VENV)/.project ## run a real workload, kill a worker, prove that nothing was lost (FILES=2000)
	$(if $(FILES),FILES=$(FILES)) $(PY) -m examples.demo.run

demo-spark: $(SPARK_VENV)/.project ## jobs from a table on Spark, real workers, an audit of their history (JOBS=1000000)
	$(if $(JOBS),JOBS=$(JOBS)) $(SPARK_VENV)/bin/python -m examples.demo_spark.run

test: collect check ## check, then run the tests, but for slow and long ones and those on Spark
	$(PYTEST) -m "not mutants and not long and not slow" $(addprefix --ignore tests/,$(LONG_FOLDERS))

test-all: check ## check, then run all tests except those on Spark; with COVERAGE=1, require branch coverage
	@rm -rf .coverage
	$(PYTEST) -m "not mutants" $(if $(CI),$(addprefix --ignore ,$(SHORT_KILLS))) $(if $(COVERAGE),--cov --cov-report=)
ifdef COVERAGE
	@echo "branch coverage, at least $(COVERED_MIN) %:"
	@$(BIN)/coverage report --include='$(COVERED)' --omit='*/stores/cassandra*,*/stores/postgres*,*/stores/redis*' --fail-under=$(COVERED_MIN)
endif

# Compiles the tests for all processes of pytest, while one core is left over by `check`.
collect: $(VENV)/.project
	@($(PY) -m pytest -q --collect-only --ignore tests/unit/spark >/dev/null 2>&1 &)

test-lakehouse: $(LAKEHOUSE_VENV)/.project ## run the tests with Airflow, Dagster, dbt and Iceberg, in a separate environment
	@$(LAKEHOUSE_VENV)/bin/python -m pytest -q tests/integration/lakehouse

test-spark: $(SPARK_VENV)/.project ## run the tests on Spark, in a separate environment (needs Java 17)
	@$(MAKE) --no-print-directory -j 2 $(if $(CI),--output-sync=target) $(SPARK_TESTS)

# Two processes, of which one shares a Spark: most of its tests are short plans, one after the other.
SPARK_TESTS := test-spark-session test-spark-others
.PHONY: $(SPARK_TESTS)
$(SPARK_TESTS):
	@$(SPARK_VENV)/bin/python -m pytest -q tests/unit/spark -m '$(if $(findstring others,$@),not )spark_session'

# Versions of Python besides that of VENV; those that are not installed are named and left out.
PYTHONS ?= 3.12 3.13 3.14
test-pythons: $(VENV)/.project ## run the unit tests with other installed versions of Python (PYTHONS="3.12 3.13 3.14")
	$(PY) -m tools.pythons --workers $(WORKERS) $(PYTHONS)

format: $(VENV)/.project ## format the code, and fix what a linter can
	$(BIN)/ruff format --quiet $(CODE)
	$(BIN)/ruff check --quiet --fix $(CODE)

check: $(VENV)/.project ## format, lint, types, layers, module lengths, structure, words
	@$(MAKE) --no-print-directory -j 2 --output-sync=target $(CHECKS)

# The types take as long as the others together.
CHECKS := check-types check-others
.PHONY: $(CHECKS)
check-types:
	$(BIN)/mypy $(CODE)

check-others:
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/ruff check $(CODE)
	$(BIN)/lint-imports --no-logo
	$(PY) -m tools.module_lengths $(CODE)
	$(PY) -m tools.structure
	$(PY) -m tools.budget
	$(PY) -m tools.words

words: $(VENV)/.project ## find words that the project does not use (tools/words.txt)
	$(PY) -m tools.words

reference: $(VENV)/.project ## write the generated parts of docs/reference from the code and the tests
	$(PY) -m tools.reference
	$(PY) -m tools.features
	$(PY) -m tools.public_api

structure: $(VENV)/.project ## count packages, imports, lines, and questions about the kind of store
	$(PY) -m tools.structure
	$(PY) -m tools.budget

models: $(VENV)/.project ## explore the protocols, and check that each rule is needed
	$(PY) -m models

mutants: $(VENV)/.project ## break the rules one by one, and check that a test notices each
	$(PYTEST) -m mutants $(addprefix tests/,$(MUTANT_TESTS))

planted: $(VENV)/.project ## plant usual mistakes at random, and list those that no test notices (PACKAGE=worker SAMPLE=40 SEED=1)
	nice -n 15 $(PY) -m tools.planted_faults $(if $(PACKAGE),--package $(PACKAGE)) $(if $(SAMPLE),--sample $(SAMPLE)) $(if $(SEED),--seed $(SEED))

simulate: $(VENV)/.project ## run complete queues in simulated time, with faults (SEEDS=2000)
	$(PY) -m simulation $(if $(SEEDS),--seeds $(SEEDS))

calls: $(VENV)/.project ## run scripts in which each call to the store fails in turn (13,000)
	$(PY) -m simulation --calls

guard: $(VENV)/.project ## test with a Cassandra that may respond on wrong streams (5.0.8), on a separate node
	@trap '$(PYTHON) -m tools.cassandra down --remove --dir $(GUARD_DIR)' EXIT; \
	$(PYTHON) -m tools.cassandra up --version 5.0.8 --first $(GUARD_FIRST) --dir $(GUARD_DIR) --fast-start && \
	DUELINE_REQUIRE=cassandra DUELINE_TEST_CASSANDRA=127.0.0.$(GUARD_FIRST) $(PY) -m pytest -q \
	  tests/stores/cassandra/test_guard.py tests/stores/cassandra/test_faults.py

# Kill tests on separate stores, which run in parallel with `make -j`.
KILL_LOOPS := $(addprefix kills-,cassandra postgres redis sqlite jumping full-disk silent-disk flows dependents topics orders durable ports writers power limits costs sections needs moves requeues circuits)
.PHONY: $(KILL_LOOPS)

kills: $(KILL_LOOPS) ## kill -9 workers and producers (KILLS=50 JOBS=20000), jumping clocks, full and silent disks, 16 writers for 30 s, power failures, handlers beyond their limits, jobs with costs, sections that must not repeat, jobs with needs, stores that move, a task that pauses itself

$(KILL_LOOPS): $(VENV)/.project

kills-sqlite:
	$(PY) -m tests.kills

kills-jumping:
	$(JUMPING_KILLS) $(PY) -m tests.kills --jumping

kills-full-disk:
	$(FULL_DISK_KILLS) $(PY) -m tests.kills --store full-disk

kills-silent-disk:
	$(SILENT_DISK_KILLS) $(PY) -m tests.kills --store silent-disk

kills-flows:
	$(PY) -m tests.kills.flows

kills-dependents:
	$(PY) -m tests.kills.dependents

kills-topics:
	$(PY) -m tests.kills.topics

kills-orders:
	$(PY) -m tests.kills.orders

kills-requeues:
	$(PY) -m tests.kills.requeues

kills-durable:
	$(PY) -m tests.kills.durable

kills-ports: $(PEERS_VENV)/.lock
	$(PY) -m tests.kills.ports

kills-writers:
	$(PY) -m tests.kills.writers

kills-power:
	$(PY) -m tests.kills.power

kills-limits:
	$(PY) -m tests.kills.limits

kills-costs:
	$(PY) -m tests.kills.costs

kills-sections:
	$(PY) -m tests.kills.sections

kills-needs:
	$(PY) -m tests.kills.needs

kills-moves:
	$(PY) -m tests.kills.moves

kills-circuits:
	$(PY) -m tests.kills.circuits

kills-cassandra:
	$(if $(findstring cassandra,$(DUELINE_REQUIRE)),$(CASSANDRA_KILLS) $(PY) -m tests.kills --store cassandra)

kills-postgres:
	$(if $(findstring postgres,$(DUELINE_REQUIRE)),$(POSTGRES_KILLS) $(PY) -m tests.kills --store postgres)

kills-redis:
	$(if $(findstring redis,$(DUELINE_REQUIRE)),$(REDIS_KILLS) $(PY) -m tests.kills --store redis)

versions: $(VENV)/.project ## run the previous and this version on one store, and kill processes of both (SECONDS=60 STORE=address)
	$(PY) -m tests.kills.versions $(if $(SECONDS),--seconds $(SECONDS)) $(if $(STORE),--store '$(STORE)')

appends: $(VENV)/.project ## kill -9 producers whose transactions append events, consumers and the PostgreSQL server (KILLS=100 STRIKES=10)
	$(PY) -m tests.kills.appends

products: $(VENV)/.project ## kill -9 workers while they write products, count them (KILLS=1000 STORE=sqlite|postgres)
	$(PY) -m tests.kills.products $(if $(STORE),--store $(STORE))

fuzz: $(VENV)/.project $(FUZZ_VENV)/.lock ## send generated requests to the HTTP API and the dashboard (REQUESTS=50000 SEED=1)
	$(PY) -m tools.fuzz --client $(FUZZ_VENV)/bin/python $(if $(REQUESTS),--requests $(REQUESTS)) $(if $(SEED),--seed $(SEED))

bench: $(VENV)/.project ## measure, and print rates, ratios and bars as JSON (ONLY="default pickup-full")
	$(PY) -m benchmarks $(addprefix --only ,$(ONLY))

bench-postgres: $(VENV)/.project $(PEERS_VENV)/.lock ## measure on PostgreSQL, beside its peers (STORE=url ROUNDS=5)
	$(PY) -m benchmarks --postgres $(STORE) --rounds $(or $(ROUNDS),5) $(addprefix --only ,$(or $(ONLY),postgres-default postgres-history postgres-bulk postgres-single postgres-pickup))

bench-docs: $(VENV)/.project ## measure everything, record it, and renew the figures of README and docs (CASSANDRA=host)
	@mkdir -p .cache
	-$(PY) -m benchmarks --record $(if $(CASSANDRA),--cassandra $(CASSANDRA)) > .cache/bench.json
	$(MAKE) --no-print-directory figures

figures: $(VENV)/.project ## write the figures and charts of README and docs from benchmarks/recorded.json
	$(PY) -m tools.figures
	$(PY) -m tools.pictures

bench-spark: $(SPARK_VENV)/.project ## measure on Spark, and print the ratios as JSON (ROWS=1500000)
	$(SPARK_VENV)/bin/python -m benchmarks.on_spark $(if $(ROWS),--rows $(ROWS))

# Servers: NAME-up and NAME-down.
cassandra-up: ## start a real Cassandra on loopback (NODES=3: a ring of three)
	@$(PYTHON) -m tools.cassandra up $(if $(NODES),--nodes $(NODES))

cassandra-down: ## stop it and keep its data
	@$(PYTHON) -m tools.cassandra down

postgres-up: ## start a real PostgreSQL on loopback, and install it if needed (Debian)
	@$(PYTHON) -m tools.postgres up

postgres-down: ## stop it and keep its data
	@$(PYTHON) -m tools.postgres down

redis-up: $(VENV)/.project ## start a real Redis and a Valkey on loopback, and install Redis if needed (Debian)
	@$(PY) -m tools.redis up

redis-down: $(VENV)/.project ## stop them and keep their data
	@$(PY) -m tools.redis down

LOCK := $(BIN)/uv pip compile --quiet --universal --generate-hashes --no-header --no-emit-index-url
lock: $(VENV)/.lock ## pin every dependency by hash (UPGRADE=--upgrade renews the pins)
	$(LOCK) --extra all --group pyproject.toml:dev $(UPGRADE) --output-file requirements/dev.txt pyproject.toml
	$(LOCK) --extra all --extra spark --group pyproject.toml:spark-test $(UPGRADE) --output-file requirements/spark.txt pyproject.toml
	$(LOCK) --group pyproject.toml:docs $(UPGRADE) --output-file requirements/docs.txt
	$(LOCK) --group pyproject.toml:audit $(UPGRADE) --output-file requirements/audit.txt
	$(LOCK) --group pyproject.toml:peers $(UPGRADE) --output-file requirements/peers.txt
	$(LOCK) --group pyproject.toml:release $(UPGRADE) --output-file requirements/release.txt
	$(LOCK) --group pyproject.toml:fuzz $(UPGRADE) --output-file requirements/fuzz.txt
	$(LOCK) --extra lake --group pyproject.toml:lakehouse $(UPGRADE) --output-file requirements/lakehouse.txt pyproject.toml
	@! grep -nE 'https?://' requirements/*.txt

docs: $(DOCS_VENV)/.lock ## build the documentation into site/, strictly
	NO_MKDOCS_2_WARNING=1 $(DOCS_VENV)/bin/mkdocs build --quiet --strict
	@echo "built site/index.html"

docs-serve: $(DOCS_VENV)/.lock ## show the documentation at http://127.0.0.1:8000, rebuilt when a page changes
	NO_MKDOCS_2_WARNING=1 $(DOCS_VENV)/bin/mkdocs serve

pictures: $(VENV)/.project ## draw the pictures of README and docs; run the commands that they show
	$(PY) -m tools.pictures
	$(PY) -m tools.terminal_pictures

screenshots: $(VENV)/.project ## take the pictures of the dashboard in Chromium (needs apt-get install chromium)
	$(PY) -m tools.screenshots

vulnerabilities: $(AUDIT_VENV)/.lock ## compare the pinned dependencies with published advisories (needs the index's API)
	$(AUDIT_VENV)/bin/pip-audit --strict --disable-pip --require-hashes -r requirements/dev.txt
	$(AUDIT_VENV)/bin/pip-audit --strict --disable-pip --require-hashes -r requirements/spark.txt
	$(AUDIT_VENV)/bin/pip-audit --strict --disable-pip --require-hashes -r requirements/docs.txt

release: $(RELEASE_VENV)/.lock $(VENV)/.project ## build dist/ twice, check it, install it with each extra, write its SBOM (EXTRAS="web redis")
	$(RELEASE_VENV)/bin/python -m tools.release --tests $(PY) $(if $(EXTRAS),--extras $(EXTRAS))

# actionlint is a program of Go; its module is pinned by version, and checked by Go's checksums.
ACTIONLINT := github.com/rhysd/actionlint/cmd/actionlint@v1.7.7
lint-files: $(RELEASE_VENV)/.lock ## lint workflows, Dockerfiles and shell scripts
	$(RELEASE_VENV)/bin/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml
	$(RELEASE_VENV)/bin/check-jsonschema --builtin-schema vendor.dependabot .github/dependabot.yml
	$(RELEASE_VENV)/bin/zizmor --offline --no-progress --quiet .github/workflows
	$(RELEASE_VENV)/bin/hadolint deploy/docker/Dockerfile
	$(RELEASE_VENV)/bin/shellcheck .ci/run
	@if command -v go >/dev/null; then PATH="$(abspath $(RELEASE_VENV))/bin:$$PATH" go run $(ACTIONLINT); \
	 else echo "actionlint: left out, Go is not installed"; test -z "$(CI)"; fi

test-one: $(VENV)/.project ## run the tests that a word selects, stop at the first failure (K="retry and not redis")
	$(PY) -m pytest -q -x --ignore tests/unit/spark -m "not mutants and not long" -k "$(K)" $(or $(TESTS),tests)

watch: $(VENV)/.project ## run these tests at each change of a file (K=retry TESTS=tests/unit/core)
	$(PY) -m tools.watch $(if $(K),-k "$(K)") $(or $(TESTS),tests/unit)

clean: ## remove the files of the other targets
	rm -rf $(VENV) $(SPARK_VENV) $(AUDIT_VENV) $(DOCS_VENV) $(PEERS_VENV) $(FUZZ_VENV) $(LAKEHOUSE_VENV) $(RELEASE_VENV) dist site .coverage .hypothesis .mypy_cache .pytest_cache .ruff_cache .import_linter_cache

# Recreated when the lock changes. The project itself is installed into it, editable. Modules
# are compiled when they are first loaded: compiling all of Spark's environment took 20 s.
$(VENV)/.lock: requirements/dev.txt
$(SPARK_VENV)/.lock: requirements/spark.txt
$(DOCS_VENV)/.lock: requirements/docs.txt
$(AUDIT_VENV)/.lock: requirements/audit.txt
$(PEERS_VENV)/.lock: requirements/peers.txt
$(FUZZ_VENV)/.lock: requirements/fuzz.txt
$(LAKEHOUSE_VENV)/.lock: requirements/lakehouse.txt
$(RELEASE_VENV)/.lock: requirements/release.txt
$(VENV)/.lock $(SPARK_VENV)/.lock $(DOCS_VENV)/.lock $(AUDIT_VENV)/.lock $(PEERS_VENV)/.lock $(FUZZ_VENV)/.lock $(LAKEHOUSE_VENV)/.lock $(RELEASE_VENV)/.lock:
	$(PYTHON) -m venv --clear $(@D)
	$(@D)/bin/python -m pip install --quiet --disable-pip-version-check --no-compile --no-deps --require-hashes -r $<
	@touch $@

$(PEERS_VENV)/node/.lock: benchmarks/graphile/package-lock.json $(PEERS_VENV)/.lock
	@mkdir -p $(@D)
	cp benchmarks/graphile/package.json $< $(@D)
	npm ci --prefix $(@D) --silent --no-fund --no-audit
	@touch $@

%/.project: %/.lock pyproject.toml
	$*/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@
