"""What a real CUDA machine does that the simulation must reproduce, recorded as JSON.

    python benchmarks/real_gpu.py [--quick] [--sections NAME,NAME] [FILE]

Needs torch 2.4 or newer and a CUDA card, and nothing else; copy `real_gpu.py` and the folders `sections` and
`fakegpu_lab/measure/recording` to one folder on the machine. An item that fails records its error, and a section that
fails its traceback; the rest goes on. Run as ``fakegpu-lab run --devices h100 benchmarks/real_gpu.py`` it records what
the simulation does instead, in the same shape; `compare_real.py` puts the two side by side.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import torch

HERE = Path(__file__).resolve().parent
if not (HERE / "recording").is_dir():  # in a checkout, it is a part of the package
    sys.path.insert(0, str(HERE.parent / "fakegpu_lab" / "measure"))

from recording import record  # noqa: E402 - found by the line above

SECTIONS = {
    "environment": "recording.environment",  # first: it measures the context
    "workspaces": "sections.workspaces",  # before anything else has used cuBLAS or cuDNN
    "allocation": "recording.allocation",
    "workloads": "sections.workloads",
    "saved": "sections.saved",
    "casts": "sections.casts",
    "numbers": "sections.numbers",
    "times": "sections.times",
    "messages": "recording.messages",  # last: its asserts run in processes beside this one
}
"""The modules of all sections, in the order in which they are recorded."""


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
    report = record(sections, options.quick, lambda name, s: print(f"{name}: {s:.1f} s", file=sys.stderr), SECTIONS)
    text = json.dumps(report, indent=1, sort_keys=True) + "\n"
    if options.file is None:
        sys.stdout.write(text)
    else:
        options.file.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
