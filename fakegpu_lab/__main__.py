"""``python -m fakegpu_lab``: the command line where scripts are not on the PATH."""

from __future__ import annotations

from fakegpu_lab.cli import main

main()
