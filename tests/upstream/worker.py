"""Runs the tests of one file in a process of its own, and writes each outcome to a log as soon as it is known.

The runner starts it. If the process dies, the log says in which test, and the next process goes on behind it.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import os
import re
import resource
import signal
import sys
import time
import traceback
import unittest
import zlib
from collections import defaultdict
from pathlib import Path
from typing import Any

from tests.upstream import children, files, log, older_trees
from tests.upstream.scope import out_of_scope

HOST_MEMORY = 10 << 30
"""A test that wants more fails, instead of taking the computer down."""
RESTART_AT = 5 << 30
"""With so much resident memory, a fresh process goes on."""


class TookTooLongError(BaseException):
    """No `except Exception` of a test catches it."""


def main() -> None:
    """Run what the command line says."""
    parser = argparse.ArgumentParser()
    parser.add_argument("tree", type=Path)
    parser.add_argument("file")
    parser.add_argument("log", type=Path)
    parser.add_argument("--machine", default="")
    parser.add_argument("--timeout", type=float, default=60)
    parser.add_argument("--sample", type=int, default=0)
    parser.add_argument("--every-test", action="store_true")
    parser.add_argument("--fork-server", action="store_true")
    parser.add_argument("--ids", type=Path)
    options = parser.parse_args()

    os.environ["PYTORCH_TESTING_DEVICE_ONLY_FOR"] = "cuda" if options.machine else "cpu"
    resource.setrlimit(resource.RLIMIT_DATA, (HOST_MEMORY, HOST_MEMORY))
    if options.machine:
        import fakegpu_lab

        fakegpu_lab.enable(options.machine)
    older_trees.apply()
    large_tensors_need_the_hosts_memory()

    outcomes = log.read(options.log).outcomes
    with options.log.open("a", encoding="utf-8") as file:
        writer = log.Writer(file)
        writer.write(file=options.file, tree=version(options.tree))
        try:
            tests = collected(options.tree, options.file)
            if options.fork_server:
                children.from_a_fork_server()
        except BaseException:  # also SystemExit: some files end when they cannot run
            writer.write(unloadable=traceback.format_exc()[-3000:])
            return
        if options.ids:
            wanted = options.ids.read_text().split()
            tests = {name: test for name, test in tests.items() if name in set(wanted)}
        elif not options.every_test:
            tests = {n: t for n, t in tests.items() if files.concerns_cuda(type(t), n.split("::")[1])}
        writer.write(collected=list(tests))
        inside = {name: t for name, t in tests.items() if not out_of_scope(f"{options.file}::{name}")}
        chosen = sample(inside, options.sample) if options.sample else list(inside)
        signal.signal(signal.SIGALRM, lambda *_: _too_long(writer))
        for name in chosen:
            if name not in outcomes:
                again = run(name, tests[name], writer, options.timeout)
                if again or resident() > RESTART_AT:
                    return
        writer.write(end=True)


def version(tree: Path) -> str:
    """The version of PyTorch that the tests come from."""
    path = tree.parent / "version.txt"
    return path.read_text().strip() if path.exists() else ""


def collected(tree: Path, name: str) -> dict[str, unittest.TestCase]:
    """The tests of a file by ``Class::test``."""
    path = (tree / name).resolve()
    os.chdir(tree)
    sys.path[:0] = [str(path.parent), str(tree)]
    sys.argv = [str(path)]
    module = importlib.import_module(path.stem)
    if hasattr(module, "load_tests"):
        del module.load_tests  # it only checks that the file runs as the main program
    tests = {}
    for suite in unittest.defaultTestLoader.loadTestsFromModule(module):
        for test in suite:  # type: ignore[union-attr]
            tests[f"{type(test).__name__}::{test._testMethodName}"] = test
    return tests


def sample(tests: dict[str, unittest.TestCase], size: int) -> list[str]:
    """Some of the tests, always the same: one of each function first, then a second of each, and so on."""
    functions: dict[tuple[str, str], list[str]] = defaultdict(list)
    for name, test in tests.items():
        cls, method = name.split("::")
        function = files.function(getattr(test, method))
        functions[cls, getattr(function, "__qualname__", method)].append(name)
    for members in functions.values():
        members.sort(key=lambda name: zlib.crc32(name.encode()))
    order = sorted(
        (depth, zlib.crc32(name.encode()), name) for members in functions.values() for depth, name in enumerate(members)
    )
    return [name for _, _, name in order[:size]]


def run(name: str, test: unittest.TestCase, writer: log.Writer, timeout: float) -> bool:
    """Run one test. Returns whether the next one needs a fresh process."""
    result = Outcome()
    writer.write(start=name)
    started = time.perf_counter()
    signal.setitimer(signal.ITIMER_REAL, timeout, 5)
    try:
        test.run(result)
    except BaseException:  # SystemExit
        result.failed(traceback.format_exc())
    finally:
        with contextlib.suppress(TookTooLongError):
            signal.setitimer(signal.ITIMER_REAL, 0)
    writer.write(
        id=name, status=result.status, seconds=round(time.perf_counter() - started, 2), detail=shortened(result.detail)
    )
    return result.shouldStop or "device-side assert" in result.detail or "TookTooLongError" in result.detail


def shortened(text: str) -> str:
    """Beginning and end of a long traceback."""
    return text if len(text) < 8000 else f"{text[:4000]}\n…\n{text[-4000:]}"


def _too_long(writer: log.Writer) -> None:
    writer.write(alarm=True)
    raise TookTooLongError


class Outcome(unittest.TestResult):
    """What became of one test; the worst of its subtests."""

    def __init__(self) -> None:
        super().__init__()
        self.status, self.detail = "passed", ""

    def failed(self, detail: str) -> None:
        if self.status != "failed":
            self.status, self.detail = "failed", detail

    def addError(self, test: Any, err: Any) -> None:
        super().addError(test, err)
        self.failed(_text(err))

    def addFailure(self, test: Any, err: Any) -> None:
        super().addFailure(test, err)
        self.failed(_text(err))

    def addSubTest(self, test: Any, subtest: Any, err: Any) -> None:
        super().addSubTest(test, subtest, err)
        if err is not None:
            self.failed(_text(err))

    def addUnexpectedSuccess(self, test: Any) -> None:
        super().addUnexpectedSuccess(test)
        self.failed("unexpected success: the test is marked as one that fails")

    def addSkip(self, test: Any, reason: str) -> None:
        super().addSkip(test, reason)
        if self.status == "passed":
            self.status, self.detail = "skipped", reason


def _text(err: Any) -> str:
    return "".join(traceback.format_exception(*err))


def large_tensors_need_the_hosts_memory() -> None:
    """Skip a test of a large tensor not only where the card is too small for it, but also where this computer is."""
    from torch.testing._internal import common_device_type

    fits = common_device_type._has_sufficient_memory

    def fits_both(device: str, size: int) -> bool:
        host = min(common_device_type.psutil.virtual_memory().available, HOST_MEMORY)
        return size < host / 2 and fits(device, size)  # half: the test's own copies come on top

    common_device_type._has_sufficient_memory = fits_both


def resident() -> int:
    """This process's resident memory, in bytes."""
    found = re.search(r"VmRSS:\s+(\d+)", Path("/proc/self/status").read_text())
    return int(found[1]) * 1024 if found else 0


if __name__ == "__main__":
    main()
elif __name__ == "__mp_main__":  # a process that a test started: it will import the test's file
    older_trees.apply()
