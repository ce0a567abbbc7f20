#!/usr/bin/env bash
# Runs the tests, without the browser and other people's libraries, against versions that `make test` does not use:
#
#   tests/versions.sh lowest           the lower bounds of pyproject.toml, on Python 3.10 if it is on the PATH
#   tests/versions.sh newest           the newest of everything; on Linux with PyTorch's CUDA build, several gigabytes
#   tests/versions.sh python3.13       the versions of constraints.txt on another Python: a name on the PATH, or a path
#
# Arguments after the first go to pytest, which otherwise runs everything: tests/versions.sh lowest tests/driver -k graph
#
# The environments stay in $FAKEGPU_LAB_VERSIONS (~/.cache/fakegpu_lab/versions if it is not set). They are made again when
# pyproject.toml or constraints.txt changes. Delete the folder to free the space. $PYTHON is the Python of `lowest` and
# `newest`; $WORKERS is the number of test processes (2).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

what=${1:?"lowest, newest or a Python, such as python3.13"}
shift

case $what in
  lowest) python=${PYTHON:-$(command -v python3.10 || command -v python3)} ;;
  newest) python=${PYTHON:-python3} ;;
  *) python=$(command -v "$what") || { echo "$what is not on the PATH. Give the path of a Python." >&2; exit 2; } ;;
esac

environment=${FAKEGPU_LAB_VERSIONS:-${XDG_CACHE_HOME:-$HOME/.cache}/fakegpu_lab/versions}/$(basename "$what")
pip() { "$environment/bin/python" -m pip --disable-pip-version-check "$@"; }
export FAKEGPU_LAB_EXTENSION=built  # JupyterLab's extension as it is committed: no Node

# Every `name>=bound` of pyproject.toml as `name==bound`, but for what builds the package.
lowest_bounds() { grep -v '^requires' pyproject.toml | grep -oE '"[A-Za-z0-9_-]+>=[0-9.]+"' | tr -d '"' | sed 's/>=/==/' | sort -u; }

made=$environment/made
if ! { [ "$made" -nt pyproject.toml ] && [ "$made" -nt constraints.txt ]; }; then
  echo "Making $environment with $("$python" --version) …"
  rm -rf "$environment"
  "$python" -m venv "$environment"
  pip install -qq --upgrade pip
  case $what in
    newest) pip install -qq --upgrade --upgrade-strategy eager torch --editable ".[test,browser]" ;;
    *)
      if [ "$what" = lowest ]; then lowest_bounds; else cat constraints.txt; fi >"$environment/constraints.txt"
      # PyTorch's CPU build, from wherever pip finds it; else whatever build there is of that version.
      torch=$(sed -nE 's/^(torch==[0-9.]+).*/\1/p' "$environment/constraints.txt" | head -1)
      sed -i.with-torch '/^torch==/d' "$environment/constraints.txt"
      pip install -qq "$torch+cpu" 2>/dev/null ||
        pip install -qq --extra-index-url https://download.pytorch.org/whl/cpu "$torch+cpu" 2>/dev/null ||
        pip install -qq "$torch"
      # PyTorch's CUDA builds name one Triton each, which need not be that of constraints.txt.
      if [ "$("$environment/bin/python" -c 'import torch; print(torch.version.cuda)')" != None ]; then
        sed -i.with-triton '/^triton==/d' "$environment/constraints.txt"
      fi
      pip install -qq --constraint "$environment/constraints.txt" "$torch" --editable ".[test,browser]"
      ;;
  esac
  touch "$made"
fi

"$environment/bin/python" -c 'import platform, torch; print("Python", platform.python_version(), "with torch", torch.__version__)'
[ $# -gt 0 ] || set -- --doctest-modules --ignore=fakegpu_lab/nvml/injected --ignore=fakegpu_lab/kernels/triton_programs --ignore=tests/kernels/triton_kernels.py --ignore=tests/programs \
  --ignore=tests/browser --ignore=tests/integrations fakegpu_lab tests
OMP_NUM_THREADS=1 exec "$environment/bin/python" -m pytest -q -n "${WORKERS:-2}" --dist worksteal "$@"
