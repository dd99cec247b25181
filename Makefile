# Every target sets up what it needs; nothing but Python 3.11 (or newer) and make is expected.
PYTHON ?= python3.11
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: demo test test-slow check bench bench-quality bench-ingest bench-scale clean

# torch is pinned and installed first: left to the resolver, its newest build brings gigabytes of GPU packages.
$(STAMP): pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check torch==2.13.0
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	touch $(STAMP)

demo: $(STAMP)
	$(BIN)/python examples/demo.py

test: check
	$(BIN)/python -m pytest -m "not slow"

test-slow: $(STAMP)
	$(BIN)/python -m pytest -m slow

check: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: bench-quality bench-ingest

# DATA=FOLDER measures any set in the BEIR layout.
bench-quality: $(STAMP)
	$(BIN)/python -m benchmarks.quality $(if $(DATA),--data $(DATA))

bench-ingest: $(STAMP)
	$(BIN)/python -m benchmarks.ingest

# CHUNKS=N rows of all tenants together, DATA=natural or zipf.
bench-scale: $(STAMP)
	$(BIN)/python -m benchmarks.scale $(if $(CHUNKS),--chunks $(CHUNKS)) $(if $(DATA),--data $(DATA))

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache dist
