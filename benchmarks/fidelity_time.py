"""How true the simulated time is: ours, a real card's, their ratio, and where the real figure stands.

    python benchmarks/fidelity_time.py [--quick] [--markdown]

The rows are those of `tests/fidelity/measured.py`; ``--quick`` leaves out the training steps.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.fidelity.measured import QUICK, ROWS

HEADINGS = ("What", "Card", "Unit", "Ours", "Real", "Ratio")


def main() -> None:
    """Measure every row, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="no training steps")
    parser.add_argument("--markdown", action="store_true", help="for the README, without sources")
    options = parser.parse_args()
    lines = []
    for row in QUICK if options.quick else ROWS:
        ours = row.simulated()
        cells = (row.what, row.card, row.unit, f"{ours:.4g}", f"{row.real:.4g}", f"{ours / row.real:.2f}")
        lines.append((cells, row.source))
    if options.markdown:
        print("| " + " | ".join(HEADINGS) + " |\n| --- | --- | --- | ---: | ---: | ---: |")
        for cells, _ in lines:
            print("| " + " | ".join(cells) + " |")
        return
    table = Table(*HEADINGS, "Source")
    for cells, source in lines:
        table.add_row(*cells, source)
    Console(width=160).print(table)


if __name__ == "__main__":
    main()
