# README's two commands are `make tune` and `make test`; both set up .venv first.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: setup tune test test-long lint browser docs prior clean

setup: $(STAMP)

# torch comes first and by itself: a plain `torch` in the second call would be re-resolved to a CUDA build.
$(STAMP): setup.cfg pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing torch, TVM and Ray into $(VENV): some minutes"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt torch
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,docs,bench,rpc]'
	touch $@

tune: setup
	$(BIN)/release-ray tune resnet18 --time-budget 5m

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: lint
	$(BIN)/pytest -m 'not long'

test-long: setup browser
	$(BIN)/pytest -m long

# The page is tested in a browser, which is no Python package.
browser:
	@for name in chromium chromium-browser google-chrome; do command -v $$name && exit 0; done; \
	apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium

# The site, in build/site.
docs: setup
	$(BIN)/mkdocs build --strict

# Measures anew what is shipped of other operators; half an hour.
prior: setup
	mkdir -p tuning/prior
	$(BIN)/python scripts/prior/shapes.py --out tuning/prior/operators.pt2
	$(BIN)/release-ray tune tuning/prior/operators.pt2 --work-dir tuning/prior/work \
		--tasks 'conv2d*' --tasks 'matmul*' --trials-per-task 60
	$(BIN)/python scripts/bench/pack_records.py tuning/prior/work --out release_ray/data/prior.json.gz \
		--about "operators of scripts/prior/shapes.py, on one core of $$(uname -m)"

clean:
	rm -rf build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache
