"""Every command of ``fakegpu-lab``, with its options and its help.

The module of the same name does a command's work. It is imported when the command runs, as ``NAME_command``, so that
``fakegpu-lab --help`` imports neither torch nor pydantic and answers at once.
"""

from __future__ import annotations

import platform
import sys
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

import click

import fakegpu_lab

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from fakegpu_lab.hardware.machine import Clock, Compute

_BEFORE_SCRIPT = {"allow_interspersed_args": False}  # options after the script belong to the script


def _devices(default: str, text: str) -> Callable[[Any], Any]:
    return click.option("-d", "--devices", default=default, show_default=True, metavar="SPEC", help=text)


def _compute(default: Compute, text: str) -> Callable[[Any], Any]:
    return click.option("--compute", type=click.Choice(["real", "meta"]), default=default, show_default=True, help=text)


# The options that `run` and `plan` share.
_memory = click.option("--memory", metavar="SIZE", help="Limit the memory of every GPU: 2GiB, 512MiB")
_report = click.option("--report", metavar="FILE", help="Also write what the run did to FILE, as JSON")
_chrome = click.option(
    "--chrome", metavar="FILE", help="Also write a timeline of the script's own process, for https://ui.perfetto.dev"
)
_module = click.option("-m", "module", is_flag=True, help="Run a module, as python -m does")
_code = click.option("-c", "code", is_flag=True, help="Run the code that follows, as python -c does")
_command = click.argument("command", nargs=-1, required=True, metavar="SCRIPT [ARGS]...", type=click.UNPROCESSED)


def _show_versions(context: click.Context, _: click.Parameter, requested: bool) -> None:
    if not requested:
        return
    try:
        torch = f"torch {metadata.version('torch')}"
    except metadata.PackageNotFoundError:
        torch = "torch is not installed"
    click.echo(f"fakegpu-lab {fakegpu_lab.__version__} ({torch}, Python {platform.python_version()})")
    context.exit()


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_versions,
    help="Show the versions of fakegpu-lab, torch and Python, and exit.",
)
def cli() -> None:
    """Simulated CUDA GPUs for PyTorch, on a machine that has none."""


@cli.command(context_settings=_BEFORE_SCRIPT)
@_devices("a100", "The GPUs: a100:2, a100:1,t4:2, dgx-a100, ./my-gpu.yaml")
@_memory
@_compute("real", "meta: shapes and memory only, no values")
@click.option(
    "--clock",
    type=click.Choice(["real", "simulated"]),
    default="real",
    show_default=True,
    help="simulated: time.time, perf_counter and sleep in the script follow simulated time",
)
@click.option(
    "--host",
    metavar="NAME",
    help="The host's processor: dgx-a100, cloud-t4, desktop-2023, …, a profile's path; measured: your own code takes "
    "the time that it takes here",
)
@_report
@_chrome
@click.option("-q", "--quiet", is_flag=True, help="Print no table at the end")
@_module
@_code
@_command
def run(
    devices: str,
    memory: str | None,
    compute: Compute,
    clock: Clock,
    host: str | None,
    report: str | None,
    chrome: str | None,
    quiet: bool,
    module: bool,
    code: bool,
    command: tuple[str, ...],
) -> None:
    """Run a Python SCRIPT on simulated GPUs, as `python SCRIPT ARGS` would run it.

    SCRIPT can also be - (a script on stdin), python with what follows it, or the command of an installed package, such
    as torchrun.

    The run ends with a table of what every GPU did. It is printed to stdout if that is a terminal or a notebook, and
    to stderr otherwise: a pipe or a file gets only what the script printed.
    """
    from fakegpu_lab.cli import run as run_command

    run_command.run(
        run_command.Request(devices, memory, compute, report, chrome, quiet, module, command, clock, code, host)
    )


@cli.command(context_settings=_BEFORE_SCRIPT)
@_devices("dgx-h100", "One node of the job: dgx-h100, a100:8")
@click.option(
    "-n", "--world-size", type=click.IntRange(1, 1 << 17), required=True, help="The number of ranks in the whole job"
)
@click.option("--rank", type=click.IntRange(0), default=0, show_default=True, help="Which rank to run")
@_memory
@_compute("meta", "real: also compute values, as if they were equal on all ranks")
@_report
@_chrome
@_module
@_code
@_command
def plan(
    devices: str,
    world_size: int,
    rank: int,
    memory: str | None,
    compute: Compute,
    report: str | None,
    chrome: str | None,
    module: bool,
    code: bool,
    command: tuple[str, ...],
) -> None:
    """Run only one rank of a large job, and report the memory and time it needs.

    SCRIPT runs as torchrun would start it on many nodes; the other ranks are assumed to do the same.
    """
    from fakegpu_lab.cli import plan as plan_command
    from fakegpu_lab.cli import run as run_command

    request = run_command.Request(
        devices, memory, compute, report, chrome, quiet=False, module=module, command=command, code=code
    )
    plan_command.run(request, world_size, rank)


@cli.command()
@click.argument("word", nargs=-1)
@click.option("--json", "as_json", is_flag=True, help="Print all details, as JSON")
def profiles(word: tuple[str, ...], as_json: bool) -> None:
    """List the GPUs and nodes in the catalog; with WORD, only those whose name contains it."""
    from fakegpu_lab.cli import profiles as profiles_command

    profiles_command.show(" ".join(word), as_json=as_json)


@cli.command()
@click.option(
    "-o", "--output", default="my-gpu.yaml", show_default=True, metavar="FILE", help="Write the card's profile to FILE"
)
def measure(output: str) -> None:
    """Measure this machine's real GPU, and write a profile that simulates it.

    Beside FILE, the host's profile (my-gpu-host.yaml) and a page (my-gpu.md) are written, which compares the GPU with
    the simulation of the nearest known one. It takes a few minutes.
    """
    from fakegpu_lab.cli import measure as measure_command

    measure_command.run(output)


@cli.command()
@click.option(
    "--by",
    type=click.Choice(["kernel", "line", "module"]),
    default="kernel",
    show_default=True,
    help="What the rows of the table are",
)
@click.option("--top", default=20, show_default=True, type=click.IntRange(1), help="How many rows")
@click.option("--figure", metavar="FILE", help="Also draw it, as a page for the browser: timeline.html")
@click.argument("file", nargs=-1, required=True)
def show(file: tuple[str, ...], by: str, top: int, figure: str | None) -> None:
    """Show what a real card did: a trace of torch.profiler, or a memory snapshot.

    FILE is a .json or .json.gz of export_chrome_trace, a .pickle of torch.cuda.memory._dump_snapshot, or a timeline
    that --chrome wrote. Several traces, or a folder of them, are the ranks of one job.
    """
    from fakegpu_lab.cli import show as show_command

    show_command.show(file, by, top, figure)


@cli.command()
@click.option("--html", "page", metavar="FILE", help="Also write a page with both timelines: compared.html")
@click.argument("before")
@click.argument("after")
def compare(before: str, after: str, page: str | None) -> None:
    """Compare two recorded runs: how much faster AFTER is than BEFORE, and why.

    BEFORE and AFTER are traces of torch.profiler, or timelines that --chrome wrote; a folder has the ranks of one job.
    """
    from fakegpu_lab.cli import compare as compare_command

    compare_command.show(before, after, page)


@cli.command()
def doctor() -> int:
    """Check that simulated GPUs work in this Python, and say what to do if they do not."""
    from fakegpu_lab.cli import doctor as doctor_command

    return doctor_command.examine()


@cli.command(context_settings={"ignore_unknown_options": True})
@click.option(
    "--into",
    "folder",
    metavar="FOLDER",
    default="fakegpu-lessons",
    show_default=True,
    help="Copy the lessons to FOLDER",
)
@click.argument("args", nargs=-1, metavar="[JUPYTERLAB ARGS]...", type=click.UNPROCESSED)
def lab(folder: str, args: tuple[str, ...]) -> int:
    """Copy the lessons that are not in your folder yet, and open JupyterLab on it."""
    from fakegpu_lab.cli import lab as lab_command

    return lab_command.open_lab(folder, args)


@cli.command(context_settings={"ignore_unknown_options": True, "help_option_names": []})
@click.argument("args", nargs=-1, metavar="[NVIDIA-SMI ARGS]...", type=click.UNPROCESSED)
def smi(args: tuple[str, ...]) -> int:
    """Show the GPUs of running notebooks and programs, as nvidia-smi does; --loop continues until Ctrl-C."""
    from fakegpu_lab.nvml.smi import main as nvidia_smi

    return nvidia_smi(list(args))


@cli.command()
@click.option("--lesson", required=True, metavar="NAME", help="The lesson: 03-memory, or 03, or its source folder")
@click.option(
    "--out", default="grades.csv", show_default=True, metavar="FILE", help="Write one row per submission to FILE"
)
@click.option("--feedback", metavar="FOLDER", help="Also write a page for every student")
@click.option("--summary", metavar="FILE", help="Write the instructor's page to FILE (default: next to the grades)")
@click.option("--gradebook", metavar="FILE", help="Also write nbgrader's gradebook.db")
@click.option(
    "--jobs", default=1, show_default=True, type=click.IntRange(1, 256), help="How many submissions to grade at once"
)
@click.option("--dask", metavar="ADDRESS", help="Grade on a Dask cluster: the scheduler's address, tcp://…")
@click.option("--resume", is_flag=True, help="Continue an interrupted run")
@click.option("--student", metavar="REGEX", help="A pattern whose first group is the student's name in a file's path")
@click.option("--cell-seconds", default=30.0, show_default=True, type=click.FloatRange(0.1), help="Time limit per cell")
@click.option(
    "--total-seconds", default=180.0, show_default=True, type=click.FloatRange(0.1), help="Time limit per notebook"
)
@click.option(
    "--memory",
    default="2GiB",
    show_default=True,
    metavar="SIZE",
    help="Memory limit per notebook, all processes together",
)
@click.option(
    "--processes", default=64, show_default=True, type=click.IntRange(1), help="How many processes a notebook may start"
)
@click.option("--format", type=click.Choice(["canvas", "moodle"]), help="Also write what this platform imports")
@click.option("--roster", metavar="FILE", help="The platform's own export: its students, for --format")
@click.option("--due", metavar="TIME", help="The deadline: '2026-11-20 23:59'")
@click.option(
    "--late-days", default=0, show_default=True, type=click.IntRange(0), help="How many late days cost nothing"
)
@click.option(
    "--late-penalty",
    default=0.0,
    metavar="PERCENT",
    type=click.FloatRange(0, 100),
    help="Percent of the points that each further day costs",
)
@click.option(
    "--extensions", metavar="FILE", help="Deadlines of single students: a CSV with the columns student and due"
)
@click.option(
    "--times",
    metavar="FILE",
    help="When submissions were handed in: Canvas's list of submissions (JSON), or a CSV with student and time",
)
@click.option("--comments", metavar="FILE", help="Comments for everyone whose answer they fit: comments.yaml")
@click.option("--similar", metavar="FILE", help="Also write a page of answers that are nearly the same, side by side")
@click.option("--regrade", metavar="EXERCISE", help="Grade only this exercise again; the others keep their points")
@click.argument("submitted")
def grade(submitted: str, **asked: object) -> int:
    """Grade the notebooks in SUBMITTED: nbgrader's folders, loose notebooks, or a learning platform's zip."""
    from fakegpu_lab.cli import grade as grade_command

    default = click.core.ParameterSource.DEFAULT
    source = click.get_current_context().get_parameter_source
    given = {name for name in asked if source(name) is not default}
    return grade_command.grade(grade_command.Request(submitted=submitted, **asked), given)  # type: ignore[arg-type]


@cli.command()
@click.option("--note", metavar="TEXT", help="What you found: these flags no longer ask for a look")
@click.option("--withdraw", is_flag=True, help="Forget the note: the flags ask for a look again")
@click.argument("grades", default="grades.csv")
@click.argument("student", required=False)
@click.argument("exercise", required=False)
def flags(grades: str, student: str | None, exercise: str | None, note: str | None, withdraw: bool) -> None:
    """List the flags in GRADES that nobody has looked at, or write a note about STUDENT's EXERCISE.

    GRADES is the table that `fakegpu-lab grade` wrote.
    """
    from fakegpu_lab.cli import flags as flags_command

    flags_command.flags(grades, student, exercise, note, withdraw=withdraw)


@cli.command(name="class")
@click.option("--page", metavar="FILE", help="Also write a page, which reloads itself: class.html")
@click.option(
    "--every",
    default=5.0,
    show_default=True,
    metavar="SECONDS",
    type=click.FloatRange(0.5),
    help="Refresh every SECONDS",
)
@click.option("--once", is_flag=True, help="Show the class once, and exit")
@click.argument("folder")
def class_(folder: str, page: str | None, every: float, once: bool) -> int:
    """Show who is working on which exercise, and what fails, from what students share in FOLDER (%share)."""
    from fakegpu_lab.cli import class_view

    return class_view.show(folder, page, every, once=once)


@cli.group()
def lesson() -> None:
    """Write lessons: start one, check it, release it."""


@lesson.command()
@click.argument("name")
def new(name: str) -> None:
    """Create a lesson NAME in source/, which already runs and passes its check."""
    from fakegpu_lab.cli import lesson as lesson_command

    lesson_command.new(name)


@lesson.command()
@click.argument("path")
@click.argument("name")
def exercise(path: str, name: str) -> None:
    """Add an exercise NAME to the end of the lesson in PATH: its cells, and its entry in lesson.yaml."""
    from fakegpu_lab.cli import lesson as lesson_command

    lesson_command.exercise(path, name)


@lesson.command()
@click.option(
    "--jobs", default=2, show_default=True, type=click.IntRange(1, 64), help="How many notebooks to run at once"
)
@click.option("--nbval/--no-nbval", default=True, show_default=True, help="Also run nbval")
@click.option("--exercise", "only", metavar="NAME", help="Check only this exercise: its solution and its wrong answers")
@click.argument("path", nargs=-1)
def check(path: tuple[str, ...], jobs: int, nbval: bool, only: str | None) -> int:
    """Check the lessons in PATH (by default all): solution, starter, wrong solutions, hints, time, memory."""
    from fakegpu_lab.cli import lesson as lesson_command

    return lesson_command.check(path, jobs, nbval, only)


@lesson.command()
@click.argument("path")
@click.argument("old")
@click.argument("new_name", metavar="NEW")
def rename(path: str, old: str, new_name: str) -> None:
    """Rename the exercise OLD of the lesson in PATH to NEW: in its cells, their metadata, and lesson.yaml."""
    from fakegpu_lab.cli import lesson as lesson_command

    lesson_command.rename(path, old, new_name)


@lesson.command()
@click.argument("path", nargs=-1)
def points(path: tuple[str, ...]) -> None:
    """Copy every exercise's points from its check, and write them into the metadata, the text and lesson.yaml."""
    from fakegpu_lab.cli import lesson as lesson_command

    lesson_command.points(path)


@lesson.command()
@click.argument("path", nargs=-1)
def clean(path: tuple[str, ...]) -> None:
    """Remove outputs and widget state from the lessons in PATH (by default all)."""
    from fakegpu_lab.cli import lesson as lesson_command

    lesson_command.clean(path)


@lesson.command()
@click.option("--into", metavar="FOLDER", help="By default release/ next to source/")
@click.argument("path", nargs=-1)
def release(path: tuple[str, ...], into: str | None) -> None:
    """Write the version for students of the lessons in PATH (by default all), without solutions and hidden parts."""
    from fakegpu_lab.cli import lesson as lesson_command

    lesson_command.release(path, into)


def main() -> None:
    """Run the command line. Bad input ends in one sentence, without a traceback."""
    if Path(sys.argv[0]).stem == "nvidia-smi":  # on Windows, a copy of this program on a notebook's PATH
        from fakegpu_lab.nvml.smi import main as nvidia_smi

        sys.exit(nvidia_smi(sys.argv[1:]))
    from fakegpu_lab.hardware.errors import FakeGpuError

    try:
        status = cli.main(prog_name="fakegpu-lab", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        status = error.exit_code
    except FakeGpuError as error:
        click.echo(f"fakegpu-lab: {error}", err=True)
        status = 2
    except click.Abort:  # Ctrl-C
        status = 130
    sys.exit(status)
