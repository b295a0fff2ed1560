# README's two commands are `make tune` and `make test`; both set up .venv first.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: setup tune test test-long lint clean

setup: $(STAMP)

# torch comes first and by itself: a plain `torch` in the second call would be re-resolved to a CUDA build.
$(STAMP): setup.cfg pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing torch, TVM and Ray into $(VENV): some minutes"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt torch
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,bench,rpc]'
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

test-long: setup
	$(BIN)/pytest -m long

clean:
	rm -rf build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache
