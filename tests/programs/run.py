"""Runs other people's programs, which programs.yaml lists: ``python tests/programs/run.py FOLDER [NAME ...]``.

FOLDER holds the repositories; what is missing is cloned into it. Without names, everything runs. ``--table`` prints
what the runs so far said, for README.md.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import small_data
import yaml

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = Path(__file__).parent
PROGRAMS: list[dict[str, Any]] = yaml.safe_load((HERE / "programs.yaml").read_text(encoding="utf-8"))


def runs() -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    """Each run: its name, the program, and the run itself."""
    for program in PROGRAMS:
        for run in program["runs"]:
            yield f"{program['name']}/{run['name']}", program, run


def main() -> int:
    """Run what the command line names, and keep each output and outcome in FOLDER."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("folder", type=Path)
    options.add_argument("names", nargs="*", metavar="NAME", help="a program, or program/run")
    options.add_argument("--table", action="store_true", help="print the outcomes so far, and run nothing")
    given = options.parse_args()
    if given.table:
        print(table(given.folder))
        return 0
    chosen = [entry for entry in runs() if not given.names or {entry[0], entry[1]["name"]} & set(given.names)]
    if unknown := set(given.names) - {part for entry in chosen for part in (entry[0], entry[1]["name"])}:
        sys.exit(
            f"{', '.join(sorted(unknown))}: not in programs.yaml, which has {', '.join(name for name, *_ in runs())}."
        )
    passed = True
    for name, program, run in chosen:
        folder = prepare(given.folder.resolve(), program)
        outcome = run_one(folder / run.get("in", "."), run, log_of(given.folder, name))
        log_of(given.folder, name).with_suffix(".json").write_text(json.dumps(outcome))
        print(f"{name}: {outcome['said']} ({outcome['seconds']:.0f} s)", flush=True)
        passed = passed and outcome["passed"]
    return int(not passed)


def log_of(folder: Path, name: str) -> Path:
    """Where a run's output goes."""
    return folder / f"{name.replace('/', '-')}.log"


def prepare(folder: Path, program: dict[str, Any]) -> Path:
    """Where the program's commands run: its clone, with the data that its commands read."""
    source = program.get("source", "")
    where = folder / Path(source or program["name"]).name
    if source and not where.exists():
        subprocess.run(["git", "clone", "--filter=blob:none", "--no-checkout", source, where], check=True)
        subprocess.run(["git", "-C", where, "checkout", "--quiet", program["commit"]], check=True)
    where.mkdir(exist_ok=True)
    made = where / ".prepared"
    if not made.exists():
        if "data" in program:
            exec(program["data"], {"data": small_data, "folder": where, "here": HERE})
        made.touch()
    return where


def run_one(folder: Path, run: dict[str, Any], log: Path) -> dict[str, Any]:
    """Run one command, with this Python's programs in front, and say how it ended."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "TESTS_PROGRAMS": str(HERE), **run.get("environment", {})}
    begin = time.monotonic()
    with log.open("w") as file, subprocess.Popen(
        ["bash", "-ec", run["command"]], cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=file,
        stderr=subprocess.STDOUT, start_new_session=True
    ) as process:  # fmt: skip
        try:
            ended = f"exit status {process.wait(run.get('minutes', 15) * 60)}"
        except subprocess.TimeoutExpired:
            ended = "took too long"
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
    said = re.findall(run["says"], log.read_text(errors="replace"), re.MULTILINE)
    passed = process.returncode == 0 and bool(said)
    return {
        "passed": passed,
        "said": "; ".join(said[-run.get("last", 1) :]) if passed else f"FAILED: {ended}, see {log.name}",
        "seconds": time.monotonic() - begin,
    }


def table(folder: Path) -> str:
    """The outcomes in Markdown, a section for each program."""
    lines = []
    for program in PROGRAMS:
        lines += ["", f"### {program['title']}", "", program.get("from") or source_of(program), ""]
        lines += [program["replaced"].strip(), "", "| Command | Said | Seconds |", "| --- | --- | ---: |"]
        for run in program["runs"]:
            kept = log_of(folder, f"{program['name']}/{run['name']}").with_suffix(".json")
            outcome = json.loads(kept.read_text()) if kept.exists() else {"said": "not run", "seconds": 0}
            command, said = (" ".join(text.split()).replace("|", "\\|") for text in (run["command"], outcome["said"]))
            lines.append(f"| `{command}` | {said} | {outcome['seconds']:.0f} |")
    return "\n".join(lines[1:])


def source_of(program: dict[str, Any]) -> str:
    """A link to the program's repository."""
    return f"[{Path(program['source']).name}]({program['source']}), commit {program['commit'][:7]}"


if __name__ == "__main__":
    sys.exit(main())
