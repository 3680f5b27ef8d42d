# Every target creates the virtual environment when it is missing and does nothing twice.
PYTHON ?= $(shell command -v python3.11 || command -v python3.12 || command -v python3.13 || command -v python3)
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready

.PHONY: setup demo docs docs-serve notebooks test test-browser test-ray lint bench mutate clean
.DEFAULT_GOAL := setup

setup: $(READY)

# One stamp: new when a pyproject.toml or the constraints change, otherwise nothing is installed.
$(READY): pyproject.toml models/pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]' -e ./models
	touch $(READY)

demo: $(READY)
	$(BIN)/glocal demo --out demo-out

# The documentation as a site, in site/.  mkdocs-material and Jupyter take 180 MB, so they are an extra.  NO_...: the
# theme would otherwise advertise its successor in every build.
DOCS := $(VENV)/.docs
$(DOCS): $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[docs]'
	touch $(DOCS)

docs: $(DOCS)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

docs-serve: $(DOCS)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs serve

# Run the notebooks again and keep what they print and draw.
notebooks: $(DOCS)
	$(BIN)/python tools/notebooks.py docs/notebooks

# Two processes of one thread each: most tests keep one core busy.  A file's tests stay together, they share fixtures;
# the longest files first, see tests/conftest.py.
test: $(READY) lint
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder

# The pages in the Chromium of the system; npm brings axe-core, for their accessibility, and the runtime of glocal-web.
test-browser: $(READY)
	if command -v npm >/dev/null; then $(BIN)/python -m pip install --quiet --disable-pip-version-check ./web; fi
	if command -v npm >/dev/null && ! test -f node_modules/axe-core/axe.min.js; then npm install --no-save --no-package-lock --silent axe-core@4; fi
	$(BIN)/python -m pytest -m browser

# Ray takes 600 MB, so it is an extra; where it is installed these run with the others too.
test-ray: $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[ray]'
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m ray

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python tools/docstrings.py

# Speed and memory, as ratios within one run.  The other files there are studies that want photos or a folder to work in.
SPEED := many_classes prepared serve startup vectors
bench: $(READY)
	for name in $(SPEED); do echo "== $$name"; $(BIN)/python benchmarks/$$name.py || exit 1; done

# Changes the code of formulas and decisions in a clone and counts the changes that tests notice; a sample takes an hour.
MUTANTS ?= 200
mutate: $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt cosmic-ray
	$(BIN)/python tools/mutate.py $(MUTANTS)

clean:
	rm -rf $(VENV) node_modules dist build demo-out site .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
