# setup: .venv with pinned dependencies; demo: the main job; check: seconds; test: minutes; nightly: all that is
# rare or long; docs: the site.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.ready
DEMO_STAMP := $(VENV)/.demo
PIP := $(BIN)/python -m pip install -c $(VENV)/constraints.txt

# Real processes wait for each other, so they get one worker more than cores; unit tests don't wait. Each worker imports
# torch. Where bytecode is forbidden, each would compile all files once more.
SPREAD := --maxprocesses 8 --dist worksteal
UNIT_WORKERS := -n $(shell nproc) $(SPREAD)
WORKERS := -n $(shell expr $$(nproc) + 1) $(SPREAD)
SUITES := tests/unit tests/contract tests/golden tests/integration
export PYTHONDONTWRITEBYTECODE :=

.PHONY: setup demo check unit lint lines test nightly nightly-unit nightly-integration mutants docs pages format bench planted gpu emulated clean

setup: $(STAMP)

# A torch >= 2.1 that $(PYTHON) already has is kept: the environment then sees it through
# --system-site-packages, and torch is left out of the constraints. pip's own configuration
# (indexes, wheels, certificates) is used as it stands.
$(DEMO_STAMP): pyproject.toml constraints.txt
	@if $(PYTHON) -c "import torch, sys; sys.exit(tuple(map(int, torch.__version__.split('.')[:2])) < (2, 1))" 2>/dev/null; then \
	  echo "setup: keeping the torch of $(PYTHON)"; \
	  $(PYTHON) -m venv --system-site-packages $(VENV) && grep -v '^torch==' constraints.txt > $(VENV)/constraints.txt; \
	else \
	  $(PYTHON) -m venv $(VENV) && cp constraints.txt $(VENV)/constraints.txt; \
	fi
	$(PIP) -e '.[torch]'
	@touch $(DEMO_STAMP)

$(STAMP): $(DEMO_STAMP)
	$(PIP) -e '.[dev]'
	@touch $(STAMP)

demo: $(DEMO_STAMP)
	$(BIN)/python -m autobrrr demo

# Pages that are made from the program itself: commands, remedies, words, JSON, figures, pictures. A test holds them current.
pages: setup
	$(BIN)/python docs/generate.py
	$(BIN)/python docs/pictures.py

# The site needs nothing of the program.
DOCS_VENV := .venv-docs
docs:
	$(PYTHON) -m venv $(DOCS_VENV)
	$(DOCS_VENV)/bin/python -m pip install -q -c constraints.txt "$$(sed -n 's/^docs = \["\(.*\)"\]/\1/p' pyproject.toml)"
	NO_MKDOCS_2_WARNING=1 $(DOCS_VENV)/bin/python -m mkdocs build --strict --quiet

# What reads the code and what runs it, beside each other.
check: setup
	$(MAKE) --no-print-directory --jobs 2 --output-sync=target unit lint

unit: setup
	AUTOBRRR_TEST_EXAMPLES=10 $(BIN)/python -m pytest $(UNIT_WORKERS) tests/unit tests/contract -m "not integration"

lint: setup lines
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports
	$(BIN)/mypy

# Lines per room against tests/lines.toml; `make lines LOWER=1` lowers the budgets to what is there.
lines: setup
	$(BIN)/python tests/lines.py $(if $(LOWER),--lower)

# Beside each other what can be; a test that fails in the crowd of them has to pass alone. Then what needs a quiet machine.
# What is timed there starts from nothing, as a user's job does.
define crowded_then_alone
	$(BIN)/python -m pytest $(WORKERS) $(SUITES) -m "integration and not quiet and $(1)" || \
	  $(BIN)/python -m pytest $(SUITES) -m "integration and not quiet and $(1)" \
	    --last-failed --last-failed-no-failures none
	AUTOBRRR_TEST_COLD=1 $(BIN)/python -m pytest $(SUITES) -m "quiet and $(1)"
endef
test: check
	$(call crowded_then_alone,not nightly)

# All of it, whatever fails on the way.
nightly: setup
	$(MAKE) --no-print-directory --keep-going nightly-unit nightly-integration mutants

nightly-unit:
	AUTOBRRR_TEST_EXAMPLES=1000 $(BIN)/python -m pytest $(UNIT_WORKERS) tests/unit tests/contract -m "not integration"

nightly-integration:
	$(call crowded_then_alone,nightly)

mutants:
	$(BIN)/python tests/mutants.py

format: setup
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# Timings never stand in tests; each script prints a table. See benchmarks/README.md and docs/figures.md.
bench: setup
	$(BIN)/python -m benchmarks

# Planted bottlenecks: first what is true of each job, then what `diagnose` says. Both go on where they stood.
planted: setup
	$(BIN)/python -m benchmarks.planted confirm
	$(BIN)/python -m benchmarks.planted run

# What only a GPU can say, in shards of nine minutes at most (python -m benchmarks.gpu --help); a shard that is cut off
# goes on where it stood. From a bare checkout and with the python3 that is there: needs torch, numpy, psutil,
# nvidia-ml-py, msgspec, tomli-w and isal; WHEELS=folder holds those of them that are missing.
GPU_SITE := build/gpu-site
SHARD ?= facts truth end-to-end harmless remedies planted-confirm planted
OUT ?= benchmarks/results
gpu:
	@if [ -n "$(WHEELS)" ]; then \
	  $(PYTHON) -m pip install -q --no-index --no-deps --no-compile --upgrade --target $(GPU_SITE) $(WHEELS)/*.whl; \
	fi
	PYTHONPATH=$(GPU_SITE):tui:$$PYTHONPATH $(PYTHON) -m benchmarks.gpu $(SHARD) --out $(OUT)

# The tool on torch's CUDA build without a GPU: the device is emulated, see tests/emulated/README.md. Its environment
# is one of its own, without NVIDIA's libraries, so torch's dependencies are named here.
CUDA_VENV := .venv-cuda
CUDA_BIN := $(CUDA_VENV)/bin
CUDA_STAMP := $(CUDA_VENV)/.ready
EMULATED := build/emulated
WHEN ?= not nightly
OF_TORCH := filelock typing_extensions setuptools sympy networkx jinja2 fsspec
emulated: $(CUDA_STAMP)
	$(CUDA_BIN)/python tests/emulated/device/build.py $(EMULATED)
	$(EMULATED)/emurun $(CUDA_BIN)/python -m pytest tests/emulated -m "$(WHEN)"

$(CUDA_STAMP): constraints.txt tests/emulated/requirements.txt
	$(PYTHON) -m venv $(CUDA_VENV)
	$(CUDA_BIN)/python -m pip install -q --no-deps -r tests/emulated/requirements.txt
	grep -v '^torch==' constraints.txt > $(CUDA_VENV)/constraints.txt
	$(CUDA_BIN)/python -m pip install -q -c $(CUDA_VENV)/constraints.txt $(OF_TORCH) pytest pytest-timeout -e .
	@touch $(CUDA_STAMP)

clean:
	rm -rf $(VENV) $(CUDA_VENV) $(DOCS_VENV) build dist site *.egg-info .mypy_cache .ruff_cache .pytest_cache
