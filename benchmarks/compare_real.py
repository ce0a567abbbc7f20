"""A recording of a real card beside one of the simulation: what agrees, and by how much the rest is off.

    python benchmarks/compare_real.py REAL.json [SIMULATED.json] [--devices SPEC] [--section NAME] [--all] [--json]

Both are made by `real_gpu.py`. With one file, the simulation of that card is recorded first. Figures are compared by
relative error, texts for equality; what cannot agree (dates, drivers, host) is shown, not judged. Where the simulation
has no times yet they are left out. Exit code 0, unless a file cannot be read.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from fakegpu_lab.hardware.catalogue.lookup import catalogue, gpu
from fakegpu_lab.measure.comparison import Difference, compare, summary

HERE = Path(__file__).parent
WIDTH = 120  # columns that the summary takes; in 80, nobody can read its headers


def spec_of(report: dict[str, Any]) -> str:
    """The id of the profile of the card that a recording was made on."""
    name = report["sections"]["environment"]["device_name"]
    for card in catalogue("gpus"):
        if gpu(card).name == name:
            return card
    raise SystemExit(f"No profile is named {name!r}, the card of the recording: give one with --devices.")


def simulate(spec: str, quick: bool, sections: list[str]) -> dict[str, Any]:
    """Record the simulation of a card, in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "simulated.json"
        command = [sys.executable, "-m", "fakegpu_lab", "run", "--quiet", "--devices", spec, str(HERE / "real_gpu.py")]
        command += [str(file), "--sections", ",".join(sections), *(["--quick"] if quick else [])]
        done = subprocess.run(command, check=False, stdout=sys.stderr)
        if done.returncode:
            raise SystemExit(f"Recording the simulation failed with exit code {done.returncode}.")
        recorded: dict[str, Any] = json.loads(file.read_text("utf-8"))
        return recorded


def shown(value: Any) -> str:
    """A cell of the table."""
    text = f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
    return text if len(text) <= 60 else text[:57] + "…"


def finite(error: float) -> float | None:
    """An error for JSON, which has no infinity."""
    return None if error == float("inf") else error


def percent(error: float | None) -> str:
    """An error as people read it."""
    return "" if error is None else "differs" if error == float("inf") else f"{error:.1%}"


def tables(found: list[Difference], rows: list[dict[str, Any]], every: bool) -> list[Table]:
    """The summary, and the figures that differ (or all)."""
    first = Table(title="Real and simulated, section by section", box=SIMPLE_HEAD, padding=0)
    for header in rows[0] if rows else ():
        name, widest = header == "section", max(map(len, header.split()))
        first.add_column(header, justify="left" if name else "right", min_width=widest, no_wrap=name)
    for row in rows:
        first.add_row(*(percent(v) if k.endswith("error") else shown(v) for k, v in row.items()))
    second = Table(title="All figures" if every else "What differs, worst first")
    for header in ("what", "real", "simulated", "error"):
        second.add_column(header, justify="right" if header == "error" else "left", overflow="fold")
    chosen = found if every else sorted((d for d in found if d.error), key=lambda d: -d.error)
    for d in chosen:
        second.add_row(d.path, shown(d.real), shown(d.simulated), percent(d.error))
    return [first, second] if chosen else [first]


def read(path: Path) -> dict[str, Any]:
    """A recording."""
    try:
        report: dict[str, Any] = json.loads(path.read_text("utf-8"))
        report["sections"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SystemExit(f"{path} is no recording of real_gpu.py: {error!r}.") from None
    return report


def main() -> None:
    """Compare what the command line names."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("real", type=Path, help="recorded on a card")
    parser.add_argument("simulated", type=Path, nargs="?", help="recorded under the simulation (default: now)")
    parser.add_argument("--devices", metavar="SPEC", help="the card to simulate (default: the one of the recording)")
    parser.add_argument("--section", help="only this section")
    parser.add_argument("--all", action="store_true", help="list also what agrees")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    options = parser.parse_args()
    real = read(options.real)
    sections = [options.section] if options.section else list(real["sections"])
    if unknown := [name for name in sections if name not in real["sections"]]:
        parser.error(f"{options.real} has no section {unknown[0]!r}: it has {', '.join(real['sections'])}.")
    if options.simulated is None:
        simulated = simulate(options.devices or spec_of(real), real["quick"], sections)
    else:
        simulated = read(options.simulated)
    for report in (real, simulated):
        report["sections"] = {name: report["sections"][name] for name in sections if name in report["sections"]}
    found, left_out = compare(real, simulated)
    rows = summary(found, left_out)
    if options.json:
        differing = [{**asdict(d), "error": finite(d.error)} for d in found if d.error or options.all]
        print(json.dumps({"summary": rows, "differences": differing, "left_out": left_out}, indent=1))
        return
    console = Console()
    console.width = max(console.width, WIDTH)
    for table in tables(found, rows, options.all):
        console.print(table)


if __name__ == "__main__":
    main()
