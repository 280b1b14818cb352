# make help lists the targets. PYTHON=python3.12 runs any of them in an environment of that Python.
PYTHON := python3
VENV := .venv$(subst python,-,$(filter-out python python3,$(notdir $(PYTHON))))
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
INSTALLED := $(VENV)/.installed
INSTALLED_DEV := $(VENV)/.installed-dev

.DEFAULT_GOAL := help
FUZZED := tests/store/test_manifest.py tests/store/test_hostile_manifests.py \
	tests/replay/checkpoint/test_dump_damage.py

.PHONY: help install dev demo test test-device test-slow soak fuzz mutants browser lint docs bench bench-quick clean wheel release compat

help: ## list the targets
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

install: $(INSTALLED) ## make .venv and install the project alone

dev: $(INSTALLED_DEV) ## install all extras and the tools of tests, pages and types as well

# torch goes first and pinned: unpinned it may bring gigabytes of GPU libraries.
$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) torch
	$(PIP) -e .
	@touch $@

# Only pip 25.1 and newer read [dependency-groups].
$(INSTALLED_DEV): $(INSTALLED)
	$(PIP) 'pip>=25.1'
	$(PIP) --group dev
	@touch $@

demo: install ## run the main job end to end on data that ships with the package
	$(BIN)/rlds demo

# Where this is set, each worker and each process that a test starts would compile all it imports.
test test-slow: export PYTHONDONTWRITEBYTECODE :=

test: dev ## run the tests, on two cores
	$(BIN)/python -m pytest -n 2 --dist worksteal

test-device: dev ## run the tests that need a GPU; each is skipped with its reason where there is none
	$(BIN)/python -m pytest tests/device -rs

browser: ## bring Chromium and its driver, which tests of the page need (Debian, Ubuntu)
	test -x /usr/bin/chromedriver || { apt-get update && apt-get install -y --no-install-recommends chromium chromium-driver; }

test-slow: dev ## run the tests that repeat at length what a faster one shows
	$(BIN)/python -m pytest -n 2 -m slow
	RLDS_TEST_FLIPS=150 RLDS_TEST_MUTATIONS=400 $(BIN)/python -m pytest tests/store/test_bit_flips.py $(FUZZED)

fuzz: dev ## flip 10,000 bits of two datasets, mutate 36,000 files, manifests and dumps (20 minutes)
	RLDS_TEST_FLIPS=5000 $(BIN)/python -m pytest -s tests/store/test_bit_flips.py
	RLDS_TEST_MUTATIONS=3000 $(BIN)/python -m pytest --timeout 0 tests/formats/test_mutations.py $(FUZZED)

mutants: dev ## break 150 things, one at a time, and list what no test finds (SAMPLE, SEED, ONLY=PATH)
	$(BIN)/python scripts/mutants $(ONLY) --sample $(or $(SAMPLE),150) --seed $(or $(SEED),0)

soak: dev ## kill and continue downloads, conversions and preprocess runs 500 times (30 minutes)
	$(BIN)/python -m tests.soak --cycles $(or $(CYCLES),500)

lint: dev ## check style and types, and that the pages of commands are what these say
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python scripts/commands --check

# -n -W: a link, an anchor or a name that leads nowhere fails, and is named with its file and line.
docs: dev ## build the site of the pages into build/docs; every link is checked
	$(BIN)/sphinx-build -q -n -W --keep-going -j auto -c docs . build/docs

# A peer without a wheel for this machine is left out, and the table says so.
bench: dev ## measure against peers and physical limits; JSON into build/bench
	-$(PIP) --group bench
	$(BIN)/python -m benchmarks.measure

bench-quick: dev ## the same in three minutes: fewer cases and smaller data
	$(BIN)/python -m benchmarks.measure --quick

wheel: dev ## build the wheel; run the demo and the tests of the face from it in an empty environment
	rm -rf dist
	$(BIN)/python -m build --wheel --outdir dist .
	./scripts/check-archive dist/*.whl

release: dev ## build and check the sdist, the wheel, the notes and the bill of materials of the last commit
	$(PIP) --group release
	$(BIN)/python scripts/release

compat: dev ## run the tests of batches on the oldest and newest tensordict
	./scripts/check-tensordict $(BIN)/python

clean: ## remove everything that was built
	rm -rf .venv .venv-* build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis *.egg-info
