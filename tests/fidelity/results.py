"""What the simulation says for each published figure (results.csv), and its errors by category.

    python -m tests.fidelity.results [--write] [WORD ...]

Without words all rows, which takes a quarter of an hour; with words those whose description has one of them.
"""

from __future__ import annotations

import csv
from collections import defaultdict
from statistics import median
from typing import TYPE_CHECKING

import click

from tests.fidelity.published import HERE, HOST, NEVER_SEEN, SECOND_ROUND, Row, error, rows, series, sources
from tests.fidelity.table import PAGE, with_part

if TYPE_CHECKING:
    from collections.abc import Iterable

RESULTS = HERE / "results.csv"
ROUNDS = {"first round": NEVER_SEEN, "second round": SECOND_ROUND}
"""Which host-bound series nobody here had opened before they were simulated."""
BEGIN, END = "<!-- python -m tests.fidelity.results --write -->\n", "\n<!-- end of results -->\n"


def read() -> dict[tuple[str, str], float]:
    """What the simulation said when the file was written, by description and machine."""
    with RESULTS.open(encoding="utf-8") as file:
        return {(row["what"], row["machine"]): float(row["ours"]) for row in csv.DictReader(file)}


def write(found: dict[tuple[str, str], float]) -> None:
    with RESULTS.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["what", "machine", "ours"])
        writer.writerows(
            [row.what, row.machine, f"{found[row.what, row.machine]:.5g}"]
            for row in rows()
            if (row.what, row.machine) in found
        )


def errors(found: dict[tuple[str, str], float], *, held_out: bool) -> dict[str, list[float]]:
    """How far off each comparable row is, by category."""
    by = defaultdict(list)
    for row in rows():
        if row.held_out == held_out and not row.apart:
            by[row.category].append(error(found[row.what, row.machine], row.real))
    return by


def summary(found: dict[tuple[str, str], float]) -> str:
    """The errors by category, and the rows that are not comparable, in Markdown."""
    known, aside = errors(found, held_out=False), errors(found, held_out=True)
    lines = [
        "| Category | Rows | Half within | Worst | Set aside | Half within | Worst |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for category in known:
        cells = [category, *_told(known[category]), *_told(aside.get(category, []))]
        lines.append(f"| {' | '.join(cells)} |")
    lines += [
        "",
        by_series(found),
        "",
        "| Not comparable | Machine | Real | Ours | Ratio | Why |",
        "| --- | --- | ---: | ---: | ---: | --- |",
    ]
    for row in rows():
        if row.apart:
            ours = found[row.what, row.machine]
            figures = f"{row.real:g} {row.unit} | {ours:.4g} {row.unit} | {ours / row.real:.2f}"
            lines.append(f"| {row.what} | {row.machine} | {figures} | {row.apart} |")
    return "\n".join(lines)


def by_series(found: dict[tuple[str, str], float]) -> str:
    """The errors of host-bound programs by series, in Markdown; a time below 1 is a simulation that is too fast."""
    lines = [
        "| Host-bound series | Torch | Host | Rows | Set aside | Half within | Time, ours to real |",
        "| --- | --- | --- | ---: | --- | ---: | ---: |",
    ]
    several = defaultdict(list)
    for row in rows():
        if row.category == HOST:
            several[series(row.source)].append(row)
    for key in sorted(several):
        told = [sources()[source] for source in dict.fromkeys(row.source for row in several[key])]
        times = sorted(
            (found[row.what, row.machine] / row.real) ** (-1 if row.unit.endswith("/s") else 1) for row in several[key]
        )
        cells = [
            f"{told[0]['author']}: " + ", ".join(f"[{one['source']}]({one['url']})" for one in told),
            ", ".join(dict.fromkeys(one["torch"] or "not published" for one in told)),
            "; ".join(dict.fromkeys(host for one in told for host in (one["host"] or "not published").split("; "))),
            str(len(times)),
            next((told for told, keys in ROUNDS.items() if key in keys), "later" if several[key][0].held_out else ""),
            f"{100 * median(error(one, 1) for one in times):.0f}%",
            f"{times[0]:.2f} … {times[-1]:.2f}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _told(found: list[float]) -> tuple[str, str, str]:
    if not found:
        return "0", "", ""
    return str(len(found)), f"{100 * median(found):.0f}%", f"{100 * max(found):.0f}%"


def page_with(table: str) -> str:
    """The page with another summary."""
    return with_part(BEGIN, END, table)


def evaluated(chosen: Iterable[Row]) -> dict[tuple[str, str], float]:
    found = {}
    for row in chosen:
        found[row.what, row.machine] = ours = row.ours()
        click.echo(f"{ours / row.real:5.2f}  {row.machine:18} {row.what}: {row.real:g} {row.unit}, here {ours:.5g}")
    return found


@click.command()
@click.option("--write", "writing", is_flag=True, help="Into results.csv and docs/fidelity.md.")
@click.argument("words", nargs=-1)
def main(writing: bool, words: tuple[str, ...]) -> None:
    """Ask the simulation for each published figure, and say how far off it is."""
    chosen = [
        row
        for row in rows()
        if not words or any(word in f"{row.category}, {row.what}, {row.machine}" for word in words)
    ]
    found = evaluated(chosen)
    if writing:
        found = (read() if words else {}) | found
        write(found)
        PAGE.write_text(page_with(summary(read())), "utf-8")
    elif not words:
        click.echo(summary(found))


if __name__ == "__main__":
    main()
