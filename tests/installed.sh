#!/usr/bin/env bash
# Installs a release in a fresh environment, without the repository, and uses it: tests/installed.sh dist
#
# The sdist must make the same wheel. $PYTHON is the Python of the environment (python3).
set -euo pipefail
dist=$(cd "${1:?"the folder with the wheel and the sdist"}" && pwd)
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
cd "$place"

"${PYTHON:-python3}" -m venv fresh
pip() { fresh/bin/python -m pip --disable-pip-version-check "$@"; }
pip install -qq --constraint "$here/constraints.txt" torch 2>/dev/null ||
  pip install -qq --constraint "$here/constraints.txt" --extra-index-url https://download.pytorch.org/whl/cpu torch
FAKEGPU_LAB_EXTENSION=built pip wheel -qq --no-deps --wheel-dir again "$dist"/*.tar.gz
fresh/bin/python - "$dist"/*.whl again/*.whl <<'PYTHON'
import sys
import zipfile

wheel, again = ({one.filename: one.CRC for one in zipfile.ZipFile(path).infolist()} for path in sys.argv[1:])
unlike = sorted(name for name in wheel.keys() | again.keys() if wheel.get(name) != again.get(name))
assert not unlike, f"the wheel of the sdist differs in {unlike}"
assert not [name for name in wheel if "made-of" in name or "/source/" in name], "what students must not get"
PYTHON

pip install -qq --constraint "$here/constraints.txt" "$(echo "$dist"/*.whl)[lab]"
fresh/bin/python -c '
import fakegpu_lab as lab, torch
lab.enable("a100:2")
assert (torch.ones(3, device="cuda:1") + 1).tolist() == [2.0] * 3
print(lab.__file__)
'
fresh/bin/fakegpu-lab profiles a100 >profiles
grep -q A100 profiles
ls fresh/lib/python3*/site-packages/fakegpu_lab/lessons/01-*/*.ipynb
fresh/bin/jupyter labextension list 2>&1 | grep "fakegpu-lab.*OK"
fresh/bin/fakegpu-lab doctor | tail -3
