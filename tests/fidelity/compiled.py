"""Programs that others ran with and without torch.compile (compiled.csv), beside the same simulated.

    python -m tests.fidelity.compiled [--write] [WORD …]

Without words all rows; with words those whose description has one of them. ``--write`` keeps what the simulation says
in compiled_results.csv and docs/fidelity.md. A row takes minutes: Inductor compiles each program.

The sources in `ASIDE` were set aside before any row was simulated: nothing in the model was chosen with them.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import click

from tests.fidelity.programs.compiled import MEASURES, as_it_is, compiled
from tests.fidelity.published import error
from tests.fidelity.table import PAGE, with_part

HERE = Path(__file__).parent
FILE, RESULTS = HERE / "compiled.csv", HERE / "compiled_results.csv"
BEGIN, END = "<!-- python -m tests.fidelity.compiled --write -->\n", "\n<!-- end of compiled -->\n"

ASIDE = ("timm-compile", "raschka", "raschka-llama", "raschka-qwen", "airbench", "tutorials-kr")
"""The sources that were set aside."""


@dataclass(frozen=True)
class Pair:
    """What one program took with and without torch.compile.

    Attributes
    ----------
    unit
        Of `eager` and `compiled`; one that ends in "/s" is better if it is larger.
    peak
        What of the device's memory was published, if anything: "allocated", "reserved" or "active".
    """

    what: str
    machine: str
    measure: str
    arguments: str
    unit: str
    eager: float
    compiled: float
    peak: str
    memory: tuple[float, float] | None
    held_out: bool
    source: str

    def speed_up(self, eager: float, compiled: float) -> float:
        """How many times as fast it is compiled."""
        return compiled / eager if self.unit.endswith("/s") else eager / compiled

    def ours(self) -> dict[str, float]:
        """What the simulation says, by the columns of compiled_results.csv."""
        found: dict[str, float] = {}
        for name, how in (("eager", as_it_is), ("compiled", compiled)):
            found[name], peaks = MEASURES[self.measure](self.machine, how, *self.arguments.split())
            if self.peak:
                found[f"{name} GiB"] = peaks[self.peak]
        return found


def pairs() -> list[Pair]:
    """All rows, in the file's order."""
    with FILE.open(encoding="utf-8") as file:
        return [
            Pair(
                *(row[name] for name in ("what", "machine", "measure", "arguments", "unit")),
                float(row["eager"]),
                float(row["compiled"]),
                row["peak"],
                (float(row["eager GiB"]), float(row["compiled GiB"])) if row["peak"] else None,
                row["held_out"] == "yes",
                row["source"],
            )
            for row in csv.DictReader(file)
        ]


def read() -> dict[tuple[str, str], dict[str, float]]:
    """What the simulation said when the file was written, by description and machine."""
    if not RESULTS.exists():
        return {}
    with RESULTS.open(encoding="utf-8") as file:
        return {
            (row.pop("what"), row.pop("machine")): {name: float(value) for name, value in row.items() if value}
            for row in csv.DictReader(file)
        }


COLUMNS = ["eager", "compiled", "eager GiB", "compiled GiB"]


def write(found: dict[tuple[str, str], dict[str, float]]) -> None:
    with RESULTS.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["what", "machine", *COLUMNS])
        for row in pairs():
            one = found.get((row.what, row.machine))
            if one is not None:
                figures = [f"{one[name]:.5g}" if name in one else "" for name in COLUMNS]
                writer.writerow([row.what, row.machine, *figures])


def errors(found: dict[tuple[str, str], dict[str, float]], *, held_out: bool) -> list[float]:
    """How far off the speed-up of each row is."""
    return [
        error(row.speed_up(one["eager"], one["compiled"]), row.speed_up(row.eager, row.compiled))
        for row in pairs()
        if row.held_out == held_out and (one := found.get((row.what, row.machine)))
    ]


def peak_errors(found: dict[tuple[str, str], dict[str, float]]) -> list[float]:
    """How far off the compiled peak is, as a part of the eager one."""
    return [
        error(one["compiled GiB"] / one["eager GiB"], row.memory[1] / row.memory[0])
        for row in pairs()
        if row.memory and "compiled GiB" in (one := found.get((row.what, row.machine), {}))
    ]


def peak_table(found: dict[tuple[str, str], dict[str, float]]) -> str:
    """The rows with peaks of memory, in Markdown."""
    lines = [
        "| Program | Peak of | Eager: real, ours | Compiled: real, ours | Compiled/eager: real, ours | Set aside |",
        "| --- | --- | ---: | ---: | ---: | --- |",
    ]
    for row in pairs():
        one = found.get((row.what, row.machine), {})
        if row.memory and "compiled GiB" in one:
            (eager, compiled), ours = row.memory, (one["eager GiB"], one["compiled GiB"])
            cells = [
                row.what,
                f"{row.peak} memory",
                f"{eager:.2f}, {ours[0]:.2f} GiB",
                f"{compiled:.2f}, {ours[1]:.2f} GiB",
                f"{compiled / eager:.2f}, {ours[1] / ours[0]:.2f}",
                "yes" if row.held_out else "",
            ]
            lines.append(f"| {' | '.join(cells)} |")
    several = peak_errors(found)
    if several:
        lines.append(f"\nHalf of these ratios are within {100 * median(several):.0f}%.")
    return "\n".join(lines)


def table(found: dict[tuple[str, str], dict[str, float]]) -> str:
    """All rows, and how far off the speed-ups are, in Markdown."""
    lines = [
        "| Program | Machine | Eager: real, ours | Compiled: real, ours | Speed-up: real, ours | Set aside |",
        "| --- | --- | ---: | ---: | ---: | --- |",
    ]
    for row in pairs():
        one = found.get((row.what, row.machine))
        if one is None:
            continue
        real, ours = row.speed_up(row.eager, row.compiled), row.speed_up(one["eager"], one["compiled"])
        cells = [
            row.what,
            row.machine,
            f"{row.eager:g}, {one['eager']:.4g} {row.unit}",
            f"{row.compiled:g}, {one['compiled']:.4g} {row.unit}",
            f"{real:.2f}, {ours:.2f}",
            "yes" if row.held_out else "",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    for held_out, name in (
        (False, "Of the rows that may be used to choose the model's constants"),
        (True, "Of those set aside"),
    ):
        several = errors(found, held_out=held_out)
        if several:
            lines.append(f"\n{name}, half of the speed-ups are within {100 * median(several):.0f}%.")
    both = [*errors(found, held_out=False), *errors(found, held_out=True)]
    if both:
        lines.append(f"\nOf all of them, half are within {100 * median(both):.0f}%.")
    return "\n".join([*lines, "", peak_table(found)])


def page_with(found: dict[tuple[str, str], dict[str, float]]) -> str:
    """docs/fidelity.md, with this table."""
    return with_part(BEGIN, END, table(found))


@click.command()
@click.option("--write", "writing", is_flag=True, help="Into compiled_results.csv and docs/fidelity.md.")
@click.argument("words", nargs=-1)
def main(writing: bool, words: tuple[str, ...]) -> None:
    """Ask the simulation for each pair, and say how far off its speed-up is."""
    for row in pairs():
        if words and not any(word in f"{row.what}, {row.machine}, {row.source}" for word in words):
            continue
        ours = row.ours()
        real, here = row.speed_up(row.eager, row.compiled), row.speed_up(ours["eager"], ours["compiled"])
        click.echo(f"{row.machine:12} {row.what}: {row.eager:g} → {row.compiled:g} {row.unit} ({real:.2f}), here "
                   f"{ours['eager']:.4g} → {ours['compiled']:.4g} ({here:.2f})")  # fmt: skip
        if row.memory is not None:
            click.echo(f"{'':12} {row.peak}: {row.memory[0]:g} → {row.memory[1]:g} GiB, here "
                       f"{ours['eager GiB']:.4g} → {ours['compiled GiB']:.4g}")  # fmt: skip
        if writing:  # row by row: each takes minutes
            write(read() | {(row.what, row.machine): ours})
    if writing:
        PAGE.write_text(page_with(read()), encoding="utf-8")
    if not words:
        click.echo(table(read()))


if __name__ == "__main__":
    main()
