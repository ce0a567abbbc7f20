"""The log of one test file: JSON lines, written while the tests run, so that a run can be cut off and resumed."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path


@dataclass
class Log:
    """What a log says."""

    name: str = ""
    """The test file, below PyTorch's `test/`."""
    tree: str = ""
    """The version of PyTorch that the tests come from."""
    code: str = ""
    """Which state of this package ran the last tests (`files.code`)."""
    collected: list[str] = field(default_factory=list)
    """Every test of the file that concerns CUDA, as ``Class::test``."""
    outcomes: dict[str, dict[str, Any]] = field(default_factory=dict)
    """For each test that ran: ``status``, ``seconds``, ``detail``, ``code``."""
    unloadable: str = ""
    """Why the file could not be imported."""
    running: str = ""
    """The test that has started and not ended."""
    collecting: bool = False
    """Whether the file's process ended before it had found its tests."""
    alarm: bool = False
    """Whether that test's time was over."""
    forgotten: set[str] = field(default_factory=set)
    """Tests whose outcome was taken back, to run them again."""


class Writer:
    """Appends lines to a log."""

    def __init__(self, file: IO[str]) -> None:
        self._file = file

    def write(self, **line: Any) -> None:
        """Append one line; it survives whatever happens to the process next."""
        self._file.write(json.dumps(line) + "\n")
        self._file.flush()


def path_of(results: Path, name: str, *, on_cpu: bool = False) -> Path:
    """Where the outcomes of a file are; or those of its CPU variants."""
    stem = name.removesuffix(".py").replace("/", "-")
    return results / "cpu" / f"{stem}.jsonl" if on_cpu else results / f"{stem}.jsonl"


def read(path: Path) -> Log:
    """Read a log, also one that was cut off."""
    log = Log()
    if not path.exists():
        return log
    for text in path.read_text(encoding="utf-8").splitlines():
        try:
            line = json.loads(text)
        except json.JSONDecodeError:  # cut off in the middle
            continue
        if "id" in line:
            test = line.pop("id")
            log.outcomes[test] = {**line, "code": log.code}
            log.forgotten.discard(test)
            log.running = ""
        elif "start" in line:
            log.running, log.alarm = line["start"], False
        elif "alarm" in line:
            log.alarm = True
        elif "file" in line:
            log.name, log.tree, log.collecting = line["file"], line.get("tree", ""), True
            log.code = line.get("code", "")
        elif "collected" in line:
            log.collected, log.unloadable, log.collecting = line["collected"], "", False
        elif "unloadable" in line:
            log.unloadable, log.collecting = line["unloadable"], False
        elif "forget" in line:
            log.outcomes.pop(line["forget"], None)
            log.forgotten.add(line["forget"])
    return log
