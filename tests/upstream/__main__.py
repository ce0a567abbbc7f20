"""``python -m tests.upstream``: run PyTorch's own tests on the simulated machine."""

from __future__ import annotations

from pathlib import Path

import click

from tests.upstream import report, runner
from tests.upstream.files import code

RESULTS = click.Path(file_okay=False, path_type=Path)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Run PyTorch's own tests on the simulated machine, and say what became of them."""


@main.command()
@click.argument("tree", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.argument("files", nargs=-1)
@click.option(
    "--results", type=RESULTS, required=True, help="A folder for the outcomes; a run that finds some resumes."
)
@click.option("--sample", default=0, help="At most so many tests of a file, spread over its functions.")
@click.option("--draw", default=0, help="Only so many of the files, drawn by the seed.")
@click.option("--seed", default=0, help="Another sample for every number.")
@click.option("--minutes", default=0.0, help="At most so many minutes for a file.")
@click.option("--timeout", default=0.0, help="Seconds for a test, instead of a minute, or two with several processes.")
@click.option("--again", is_flag=True, help="Run only the tests that failed, once more.")
@click.option("--twins/--no-twins", default=True, help="Also run the CPU variants of what failed.")
def run(
    tree: Path,
    files: tuple[str, ...],
    results: Path,
    sample: int,
    draw: int,
    seed: int,
    minutes: float,
    timeout: float,
    again: bool,
    twins: bool,
) -> None:
    """Run the tests of TREE, the `test` folder of PyTorch's repository; with FILES, those that match these globs."""
    where = tree.resolve(), results.resolve()
    runner.run(*where, files, sample, minutes, timeout, again=again, twins=twins, seed=seed, draw=draw)


@main.command()
@click.argument("tree", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.argument("tests", nargs=-1, required=True)
def one(tree: Path, tests: tuple[str, ...]) -> None:
    """Run single TESTS, each as `file.py::Class::test`, and show what they say."""
    runner.run_some(tree.resolve(), tests)


@main.command()
@click.argument("results", type=RESULTS)
@click.option("--all", "every", is_flag=True, help="Count also what an older state of the package did.")
def table(results: Path, every: bool) -> None:
    """Print the counts of each file, and why tests are out of scope or skipped."""
    files = report.read(results, "" if every else code())
    click.echo(report.table(files))
    for column in ("out of scope", "skipped"):
        click.echo(f"\n{column}:\n{report.reasons(files, column)}")


@main.command()
@click.argument("results", type=RESULTS)
@click.option("--tree", "column", flag_value="tree", help="Those that fail on the CPU as well.")
@click.option("--examples", default=3, help="So many tests of each group.")
def failures(results: Path, column: str | None, examples: int) -> None:
    """Print the tests that failed, grouped by their error."""
    click.echo(report.failures(report.read(results), column or "failed", examples))


@main.command()
@click.argument("before", type=RESULTS)
@click.argument("after", type=RESULTS)
def compare(before: Path, after: Path) -> None:
    """Print the tests whose outcome changed between two runs."""
    click.echo(report.compare(report.read(before), report.read(after)))


if __name__ == "__main__":
    main()
