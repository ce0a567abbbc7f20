"""A recording of a real card beside one of the simulation: what agrees, and by how much the rest is off.

    python benchmarks/compare_real.py REAL.json [SIMULATED.json] [--devices SPEC] [--section NAME] [--all] [--json]

Both are made by `real_gpu.py`. With one file, the simulation of that card is recorded first. Figures are compared by
relative error, texts for equality; what cannot agree (dates, drivers, host) is shown, not judged. Where the simulation
has no times yet they are left out. Exit code 0, unless a file cannot be read.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from fakegpu_lab.hardware.catalogue.lookup import catalogue, gpu

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = Path(__file__).parent
WIDTH = 120  # columns that the summary takes; in 80, nobody can read its headers

NOT_JUDGED = (
    "environment/nvidia_smi", "environment/driver", "environment/python", "environment/system", "environment/torch",
    "environment/cuda", "environment/cudnn", "environment/nccl", "environment/arch_list",
    "environment/properties/uuid", "environment/properties/pci_", "environment/context/free",
    "environment/device_count", "allocation/out_of_memory/texts", "messages/asserts/*/kernel_line",
    "times/*/calls", "times/shapes", "times/profiled/*/kernels", "numbers/*/readable",
)  # fmt: skip
"""Beginnings of paths (``*`` stands for one part) that depend on the host, the build, or chance."""


@dataclass(frozen=True)
class Difference:
    """One figure or text of both recordings.

    Attributes
    ----------
    error
        ``|simulated − real| / |real|`` for figures (infinite where the real one is 0), 0 or infinite for texts.
    """

    path: str
    real: Any
    simulated: Any
    error: float

    @property
    def section(self) -> str:
        """The section that it belongs to."""
        return self.path.partition("/")[0]


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """All figures and texts, by path."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from leaves(inner, f"{path}/{key}" if path else key)
    elif isinstance(value, list) and value and isinstance(value[0], (dict, list)):
        for place, inner in enumerate(value):
            yield from leaves(inner, f"{path}/{place}")
    else:
        yield path, value


def judged(path: str) -> bool:
    """Whether the two recordings ought to agree there."""
    parts = path.split("/")
    for pattern in NOT_JUDGED:
        wanted = pattern.split("/")
        if len(parts) >= len(wanted) and all(
            w == "*" or p == w or (place == len(wanted) - 1 and p.startswith(w))
            for place, (w, p) in enumerate(zip(wanted, parts, strict=False))
        ):
            return False
    return True


def error_between(real: Any, simulated: Any) -> float:
    """The relative error of two figures; 0 or infinity for anything else."""
    figures = all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in (real, simulated))
    if real == simulated:
        return 0.0
    if not figures or real == 0:
        return float("inf")
    return abs(simulated - real) / abs(real)


def no_time(path: str, simulated: Any) -> bool:
    """Whether the simulation says nothing about a time."""
    return path.startswith("times/") and path.endswith("/seconds") and not simulated


def compare(real: dict[str, Any], simulated: dict[str, Any]) -> tuple[list[Difference], dict[str, list[str]]]:
    """Both recordings, figure by figure, and the paths that could not be compared, by the reason."""
    there, here = dict(leaves(real["sections"])), dict(leaves(simulated["sections"]))
    found: list[Difference] = []
    left_out: dict[str, list[str]] = {"only real": [], "only simulated": [], "no time yet": [], "not judged": []}
    for path, value in there.items():
        if not judged(path):
            left_out["not judged"].append(path)
        elif path not in here:
            left_out["only real"].append(path)
        elif no_time(path, here[path]):
            left_out["no time yet"].append(path)
        else:
            found.append(Difference(path, value, here[path], error_between(value, here[path])))
    left_out["only simulated"] = [path for path in here if path not in there and judged(path)]
    return found, left_out


def summary(found: list[Difference], left_out: dict[str, list[str]]) -> list[dict[str, Any]]:
    """One row a section."""
    rows = []
    sections = {d.section for d in found} | {p.partition("/")[0] for paths in left_out.values() for p in paths}
    for section in sorted(sections):
        errors = [d.error for d in found if d.section == section]
        finite = [e for e in errors if e != float("inf")]
        rows.append(
            {
                "section": section,
                "compared": len(errors),
                "equal": sum(e == 0 for e in errors),
                "within 1%": sum(e <= 0.01 for e in errors),
                "within 10%": sum(e <= 0.1 for e in errors),
                "median error": statistics.median(finite) if finite else None,
                "worst error": max(finite) if finite else None,
                "different": len(errors) - len(finite),
                **{reason: sum(p.partition("/")[0] == section for p in paths) for reason, paths in left_out.items()},
            }
        )
    return rows


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
