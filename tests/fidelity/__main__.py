"""How true the simulation is: what real cards did, what happens here, and where the real figure stands.

    python -m tests.fidelity [--all] [--markdown | --write]

Training steps take minutes and are left out unless ``--all`` is given. ``--all --write`` renews docs/fidelity.md.
"""

from __future__ import annotations

import click
from rich.console import Console
from rich.table import Table

from tests.fidelity.table import PAGE, SECTIONS, cells, line, page_with, rule


@click.command()
@click.option("--all", "everything", is_flag=True, help="Training steps, too, which take minutes.")
@click.option("--markdown", is_flag=True, help="As docs/fidelity.md has it.")
@click.option("--write", is_flag=True, help="Into docs/fidelity.md. It has all of them: --all goes with it.")
def main(everything: bool, markdown: bool, write: bool) -> None:
    """Show what real cards did, what happens here, and where the real figure stands."""
    console, wrong, lines = Console(), 0, list[str]()
    for section in SECTIONS:
        if section.slow and not (everything or write):
            continue
        table = Table(*section.headings, title=section.title, title_justify="left", show_lines=bool(section.to_the))
        lines += ["", f"## {section.title}", "", "| " + " | ".join(section.headings) + " |", rule(section)]
        for fact in section.facts:
            ours = fact.ours(fact.card)
            wrong += not fact.holds(ours)
            row = cells(fact, ours)
            table.add_row(*row, style=None if fact.holds(ours) else "red")
            lines.append(line(row))
        if not (markdown or write):
            console.print(table)
    text = "\n".join(lines)
    if write:
        PAGE.write_text(page_with(text), "utf-8")
    elif markdown:
        click.echo(text)
    else:
        click.echo(f"{wrong} do not hold." if wrong else "All hold.")
    raise SystemExit(bool(wrong))


if __name__ == "__main__":
    main()
