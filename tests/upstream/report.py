"""What the logs of a run say: a table of files, the failures by their cause, and what changed between two runs."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.upstream import log
from tests.upstream.runner import twin
from tests.upstream.scope import needs_older_pytorch, out_of_scope

if TYPE_CHECKING:
    from pathlib import Path

COLUMNS = ("tests", "out of scope", "not run", "older code", "skipped", "tree", "timeout", "failed", "passed")
ERROR = re.compile(r"^(?:[\w.]+\.)?(\w*(?:Error|Exception|Crash|Exit|Took too long|AssertionError|unexpected)\w*)\b.*$")


@dataclass
class File:
    """The outcomes of a test file."""

    name: str
    tests: dict[str, str] = field(default_factory=dict)
    """For each ``Class::test`` one of `COLUMNS`."""
    details: dict[str, str] = field(default_factory=dict)
    """Reasons and tracebacks."""
    unloadable: str = ""

    def counts(self) -> Counter[str]:
        """How many tests are in which column."""
        return Counter(tests=len(self.tests), **Counter(self.tests.values()))


def read(results: Path, code: str = "") -> list[File]:
    """All files of a run; with `code`, what another state of the package did is no outcome."""
    return [read_file(path, code) for path in sorted(results.glob("*.jsonl"), key=lambda p: ("-" in p.stem, p.stem))]


def read_file(path: Path, code: str = "") -> File:
    """One file: outcomes, sorted by scope and by what the CPU variants did."""
    found, on_cpu = log.read(path), log.read(path.parent / "cpu" / path.name)
    file = File(found.name or f"{path.stem}.py")
    if found.unloadable:
        blame = "tree" if on_cpu.unloadable else "failed"
        file.unloadable = out_of_scope(f"{found.name}::") or f"{blame}: {error_line(found.unloadable)}"
    for test in found.collected or found.outcomes:
        reason = out_of_scope(f"{file.name}::{test}")
        outcome = found.outcomes.get(test)
        if reason:
            file.tests[test], file.details[test] = "out of scope", reason
        elif not outcome:
            file.tests[test] = "not run"
        elif code and outcome["code"] != code:
            file.tests[test] = "older code"
        else:
            file.tests[test], file.details[test] = outcome["status"], outcome["detail"]
            if "TookTooLongError" in outcome["detail"]:
                file.tests[test] = "timeout"
            if outcome["status"] == "failed" and (
                same_failure(outcome, on_cpu.outcomes.get(twin(test)))
                or needs_older_pytorch(f"{file.name}::{test}", found.tree)
            ):
                file.tests[test] = "tree"
    return file


def same_failure(outcome: dict[str, Any], other: dict[str, Any] | None) -> bool:
    """Whether the CPU variant fails in the same way, so that the simulated machine has no part in it."""
    if not other or other["status"] != "failed":
        return False
    return normal(error_line(outcome["detail"])) == normal(error_line(other["detail"]))


def error_line(detail: str) -> str:
    """The line of a traceback that says what went wrong; that of the child, if a process ended with an exception."""
    lines = detail.strip().splitlines()
    for number, line in enumerate(lines):
        if "exited with error code" in line and "exception" in line:
            lines = lines[number + 1 :]
            break
    found = [line for line in lines if ERROR.match(line)]
    return (found[-1] if found else lines[-1] if lines else "")[:300]


def place(detail: str) -> str:
    """The last line of PyTorch's tests in a traceback."""
    found = re.findall(r'/(test_\w+\.py)", line (\d+), in (\w+)', detail)
    return f"{found[-1][0]}:{found[-1][1]} {found[-1][2]}" if found else "?"


def normal(line: str) -> str:
    """An error without what differs from variant to variant: numbers, devices, dtypes, names."""
    line = re.sub(r"0x[0-9a-f]+", "0x", line)
    line = re.sub(r"\b(?:cuda|cpu|CUDA|CPU)\b(?::\d+)?", "device", line)
    line = re.sub(r"_(?:cuda|cpu)(?=_|\b)", "_device", line, flags=re.IGNORECASE)
    return re.sub(r"-?\d[\d.]*(?:e[+-]?\d+)?", "N", line)


def table(files: list[File]) -> str:
    """The counts of each file, and their sum, in Markdown."""
    lines = ["| file | " + " | ".join(COLUMNS) + " | of what ran in scope |", "|---|" + "--:|" * (len(COLUMNS) + 1)]
    total: Counter[str] = Counter()
    for file in files:
        counts = file.counts()
        total += counts
        if file.unloadable:
            lines.append(f"| {file.name} | not imported ({file.unloadable[:90]}) |" + " |" * len(COLUMNS))
        else:
            lines.append(row(file.name, counts))
    return "\n".join([*lines, row("**all**", total)])


def row(name: str, counts: Counter[str]) -> str:
    """One line of the table."""
    ran = counts["passed"] + counts["failed"] + counts["timeout"]
    rate = f"{counts['passed'] / ran:.1%}" if ran else "–"
    return f"| {name} | " + " | ".join(f"{counts[column]:,}" for column in COLUMNS) + f" | {rate} |"


def reasons(files: list[File], column: str, most: int = 40) -> str:
    """Why tests are out of scope, or are skipped: the reasons, most frequent first."""
    counted = Counter(
        file.details[test].strip()[:160] for file in files for test, where in file.tests.items() if where == column
    )
    return "\n".join(f"{count:6,}  {reason}" for reason, count in counted.most_common(most))


def failures(files: list[File], column: str = "failed", examples: int = 3) -> str:
    """The tests that failed, grouped by their error."""
    groups: dict[str, list[str]] = defaultdict(list)
    said: dict[str, str] = {}
    for file in files:
        for test, where in file.tests.items():
            if where == column:
                line = error_line(file.details[test])
                key = normal(line)
                if "AssertionError" in key and " : " not in key:  # its words say little; its line says more
                    key, line = (f"{words}  at {place(file.details[test])}" for words in (key, line))
                groups[key].append(f"{file.name}::{test}")
                said.setdefault(key, line)
    lines = []
    for key, tests in sorted(groups.items(), key=lambda item: -len(item[1])):
        lines += [f"{len(tests):5}  {said[key]}", *(f"         {test}" for test in tests[:examples])]
    return "\n".join(lines)


def compare(before: list[File], after: list[File]) -> str:
    """Tests whose outcome is another one than before."""
    old = {f"{file.name}::{test}": where for file in before for test, where in file.tests.items()}
    lines = []
    for file in after:
        for test, where in file.tests.items():
            was = old.get(f"{file.name}::{test}", "absent")
            if was != where and "not run" not in (was, where):
                lines.append(f"{was} → {where}: {file.name}::{test}")
    return "\n".join(sorted(lines))
