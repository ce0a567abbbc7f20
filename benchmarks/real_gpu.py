"""What a real CUDA machine does that the simulation must reproduce, recorded as JSON.

    python benchmarks/real_gpu.py [--quick] [--sections NAME,NAME] [FILE]

Needs torch 2.4 or newer and a CUDA card, and nothing else; copy `real_gpu.py` and the folder `recording` beside it to
the machine. An item that fails records its error, and a section that fails its traceback; the rest goes on. Run as
``fakegpu-lab run --devices h100 benchmarks/real_gpu.py`` it records what the simulation does instead, in the same
shape; `compare_real.py` puts the two side by side.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import json
import sys
import time
import traceback
import warnings
from pathlib import Path
from typing import Any

import torch

SECTIONS = (
    "environment",  # first: it measures the context
    "workspaces",  # before anything else has used cuBLAS or cuDNN
    "allocation",
    "workloads",
    "saved",
    "casts",
    "numbers",
    "times",
    "messages",  # last: its asserts run in processes beside this one
)
VERSION = 1


def record(sections: list[str], quick: bool) -> dict[str, Any]:
    """Record the sections, in their order; progress goes to stderr."""
    report: dict[str, Any] = {"version": VERSION, "quick": quick, "sections": {}, "errors": {}, "seconds": {}}
    warnings.simplefilter("ignore")
    gc.freeze()  # what is loaded now need not be searched at each of the many collections
    for name in SECTIONS:
        if name not in sections:
            continue
        start = time.perf_counter()
        try:
            report["sections"][name] = importlib.import_module(f"recording.{name}").record(quick)
        except Exception:
            report["errors"][name] = traceback.format_exc()
        report["seconds"][name] = round(time.perf_counter() - start, 3)
        print(f"{name}: {report['seconds'][name]:.1f} s", file=sys.stderr)
    return report


def main() -> None:
    """Record what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", nargs="?", type=Path, help="where to write the JSON (default: stdout)")
    parser.add_argument("--quick", action="store_true", help="small sizes and one repetition: under a minute anywhere")
    parser.add_argument("--sections", default=",".join(SECTIONS), help="only these, of " + ", ".join(SECTIONS))
    options = parser.parse_args()
    sections = options.sections.split(",")
    if unknown := [name for name in sections if name not in SECTIONS]:
        parser.error(f"There is no section {unknown[0]!r}: the sections are {', '.join(SECTIONS)}.")
    if not torch.cuda.is_available():
        parser.error(
            "torch sees no CUDA device: run this on a machine with one, or under the simulation as "
            "`fakegpu-lab run --devices h100 benchmarks/real_gpu.py`."
        )
    text = json.dumps(record(sections, options.quick), indent=1, sort_keys=True) + "\n"
    if options.file is None:
        sys.stdout.write(text)
    else:
        options.file.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
