"""Runs test files on one machine, and writes each outcome to a log as soon as it is known.

Importing torch and its testing library takes longer than most files of tests. So there are three kinds of process:

- this one enables the machine and imports the library, once;
- it forks a process for each file, which imports the file;
- that one forks a process in which the tests run, and another one if a test crashes, hangs or leaves the GPU unusable.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import importlib
import multiprocessing
import os
import resource
import signal
import sys
import time
import traceback
import unittest
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING

from tests.upstream import files, log, older_trees
from tests.upstream.outcome import Outcome
from tests.upstream.scope import out_of_scope

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

HOST_MEMORY = 10 << 30
"""A test that wants more fails, instead of taking the computer down."""
RESTART_AT = 4 << 30
"""With so much resident memory, a fresh process continues."""
IMPORT = 300
"""Seconds that a test file may take to import."""
GRACE = 40
"""Seconds between a test's alarm and the end of its process."""
WAITING = 3
"""A test may take this many times its seconds of the processor, by the clock on the wall: the computer may be busy."""

STATUSES = ("passed", "failed", "timeout", "skipped")
PRELOADED = (
    "torch._dynamo",
    "torch.testing._internal.common_device_type",
    "torch.testing._internal.common_fsdp",
    "torch.testing._internal.common_methods_invocations",
    "torch.testing._internal.distributed._tensor.common_dtensor",
)


class TookTooLongError(BaseException):
    """No `except Exception` of a test catches it."""


def main() -> None:
    """Run what the command line says."""
    parser = argparse.ArgumentParser()
    parser.add_argument("tree", type=Path)
    parser.add_argument("results", type=Path)
    parser.add_argument("files", nargs="+")
    parser.add_argument("--machine", default="", help="no machine: the CPU variants")
    parser.add_argument("--sample", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=0)
    parser.add_argument("--timeout", type=float, default=0)
    parser.add_argument("--again", action="store_true", help="only tests whose outcome was taken back")
    options = parser.parse_args()

    prepare(options.machine)
    groups = files.found(options.tree)
    if options.timeout:
        groups = {name: dataclasses.replace(group, timeout=options.timeout) for name, group in groups.items()}
    for name in options.files:
        started = time.monotonic()
        path = log.path_of(options.results, name, on_cpu=not options.machine)
        run_file(options, name, groups[name], path)
        found = log.read(path)
        counts = {s: sum(o["status"] == s for o in found.outcomes.values()) for s in STATUSES}
        said = found.unloadable.strip().splitlines()[-1:] or [str(counts)]
        where = "" if options.machine else " on the CPU"
        print(f"{name}{where}:", *said, f"in {time.monotonic() - started:.0f} s", flush=True)


def prepare(machine: str) -> None:
    """Enable the machine and import what most test files import."""
    os.environ["PYTORCH_TESTING_DEVICE_ONLY_FOR"] = "cuda" if machine else "cpu"
    resource.setrlimit(resource.RLIMIT_DATA, (HOST_MEMORY, HOST_MEMORY))
    if machine:
        import fakegpu_lab

        fakegpu_lab.enable(machine)
    older_trees.apply()
    for name in PRELOADED:
        importlib.import_module(name)
    large_tensors_need_the_hosts_memory()


def run_file(options: argparse.Namespace, name: str, group: files.Group, path: Path) -> None:
    """Run the tests of one file in a process of its own."""
    with path.with_suffix(".out").open("ab") as out:
        process = forked(lambda: file_process(options, name, group, path), out.fileno())
        ended = wait(process, lambda: False)
    if log.read(path).collecting:
        with path.open("a", encoding="utf-8") as file:
            log.Writer(file).write(unloadable=f"Crash at import ({ended}): {tail(path.with_suffix('.out'))}")


def file_process(options: argparse.Namespace, name: str, group: files.Group, path: Path) -> None:
    """Import a test file, and run its tests until each has an outcome."""
    until = time.monotonic() + options.minutes * 60 if options.minutes else float("inf")
    with path.open("a", encoding="utf-8") as file:
        writer = log.Writer(file)
        writer.write(file=name, tree=version(options.tree), code=files.code())
        signal.alarm(IMPORT)
        try:
            tests = collected(options.tree, name)
        except BaseException:  # also SystemExit: some files end where they cannot run
            writer.write(unloadable=traceback.format_exc()[-3000:])
            return
        signal.alarm(0)
        ids = path.with_suffix(".ids")
        if not options.machine:
            wanted = set(ids.read_text().split())
            tests = {test: case for test, case in tests.items() if test in wanted}
        else:
            tests = {test: case for test, case in tests.items() if fnmatch(test, group.only)}
        if options.machine and not group.every_test:
            tests = {t: case for t, case in tests.items() if files.concerns_cuda(type(case), case._testMethodName)}
        writer.write(collected=list(tests))
        chosen = [test for test in tests if not out_of_scope(f"{name}::{test}")]
        if options.machine and ids.exists():  # single tests
            chosen = ids.read_text().split()
        elif options.again:
            forgotten = log.read(path).forgotten
            chosen = [test for test in chosen if test in forgotten]
        elif options.sample:
            chosen = files.sample({test: tests[test] for test in chosen}, options.sample, options.seed)
        while time.monotonic() < until:
            left = [test for test in chosen if test not in log.read(path).outcomes]
            if not left:
                return
            batch = left[:1] if group.processes else left
            process = forked(lambda batch=batch: run_tests(tests, batch, writer, group))  # type: ignore[misc]
            ended = wait(process, stuck(path, group.timeout * WAITING, until))
            found = log.read(path)
            if found.running and ended != "minutes":
                took_too_long = found.alarm or ended == "stuck"
                detail = tail(path.with_suffix(".out"))
                if took_too_long:
                    writer.write(id=found.running, status="timeout", seconds=group.timeout, detail=detail)
                else:
                    detail = f"{detail}\nCrash: the process ended with {ended}"
                    writer.write(id=found.running, status="failed", seconds=0, detail=detail)


def run_tests(
    tests: dict[str, unittest.TestCase], names: Iterable[str], writer: log.Writer, group: files.Group
) -> None:
    """Run tests until one leaves this process unusable."""
    if group.processes:
        ranks_are_forked()
    signal.signal(signal.SIGPROF, lambda *_: _too_long(writer))
    for name in names:
        if run(name, tests[name], writer, group.timeout) or resident() > RESTART_AT:
            return


def run(name: str, test: unittest.TestCase, writer: log.Writer, timeout: float) -> bool:
    """Run one test. Returns whether the next one needs a fresh process."""
    result = Outcome()
    writer.write(start=name)
    started = time.perf_counter()
    signal.setitimer(signal.ITIMER_PROF, timeout, 5)
    try:
        unittest.TestSuite([test]).run(result)  # with its class's `setUpClass`
    except BaseException:  # SystemExit
        result.failed(traceback.format_exc())
    finally:
        with contextlib.suppress(TookTooLongError):
            signal.setitimer(signal.ITIMER_PROF, 0)
    if "TookTooLongError" in result.detail:
        result.status = "timeout"
    seconds = round(time.perf_counter() - started, 2)
    writer.write(id=name, status=result.status, seconds=seconds, detail=result.shortened())
    return result.shouldStop or "device-side assert" in result.detail or result.status == "timeout"


def _too_long(writer: log.Writer) -> None:
    writer.write(alarm=True)
    raise TookTooLongError


def collected(tree: Path, name: str) -> dict[str, unittest.TestCase]:
    """The tests of a file by ``Class::test``."""
    path = tree / name
    os.chdir(tree)
    sys.path[:0] = [str(path.parent), str(tree)]
    sys.argv = [str(path)]
    module = older_trees.imported(path)
    if hasattr(module, "load_tests"):
        del module.load_tests  # it only checks that the file runs as the main program
    tests = {}
    for suite in unittest.defaultTestLoader.loadTestsFromModule(module):
        for test in suite:  # type: ignore[union-attr]
            tests[f"{type(test).__name__}::{test._testMethodName}"] = test
    return tests


def version(tree: Path) -> str:
    """The version of PyTorch that the tests come from."""
    path = tree.parent / "version.txt"
    return path.read_text().strip() if path.exists() else ""


def ranks_are_forked() -> None:
    """Let a test that spawns a process for each rank fork them; a spawned one would import everything for seconds."""
    import torch.multiprocessing

    contexts = multiprocessing.get_context

    def get_context(method: str | None = None) -> object:
        return contexts("fork" if method == "spawn" else method)

    multiprocessing.set_start_method("fork", force=True)
    torch.multiprocessing.set_start_method = lambda *_, **__: None
    multiprocessing.get_context = torch.multiprocessing.get_context = get_context  # type: ignore[assignment]
    os.register_at_fork(before=let_children_use_cuda)


def let_children_use_cuda() -> None:
    """Let the next forked process use CUDA, even if this one has counted the GPUs: it stands for a spawned one."""
    if "fakegpu_lab" in sys.modules:
        from fakegpu_lab.driver.torch_cuda import devices

        devices._poisoned = False


def let_nvml_answer() -> None:
    """Let NVML know this process, which has a machine although it was forked."""
    if "fakegpu_lab" in sys.modules:
        from fakegpu_lab.driver.base import current
        from fakegpu_lab.nvml import publish

        if current.machine is not None:
            publish.begin(current.machine)


def forked(work: Callable[[], None], output: int | None = None) -> int:
    """Start a process that does some work in a session of its own. Returns its id."""
    let_children_use_cuda()
    sys.stdout.flush()
    process = os.fork()
    if process:
        return process
    code = 1
    try:
        os.setsid()
        let_nvml_answer()
        if output is not None:
            os.dup2(output, 1)
            os.dup2(output, 2)
        work()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def wait(process: int, give_up: Callable[[], str | bool]) -> str:
    """Wait for a process and end what it left behind. Returns how it ended, or why it was killed."""
    reason = ""
    while True:
        done, status = os.waitpid(process, os.WNOHANG)
        if done:
            break
        if not reason and (reason := str(give_up() or "")):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process, signal.SIGKILL)
        time.sleep(0.05)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process, signal.SIGKILL)
    if reason:
        return reason
    code = os.waitstatus_to_exitcode(status)
    return signal.Signals(-code).name if code < 0 else f"exit code {code}"


def stuck(path: Path, timeout: float, until: float) -> Callable[[], str]:
    """Whether the process that writes this log has been silent for too long, or the time for the file is over."""
    size, since = -1, time.monotonic()

    def reason() -> str:
        nonlocal size, since
        now = time.monotonic()
        if path.stat().st_size != size:
            size, since = path.stat().st_size, now
        return "minutes" if now > until else "stuck" if now - since > timeout + GRACE else ""

    return reason


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
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def tail(path: Path, lines: int = 25) -> str:
    """The end of a file."""
    return "\n".join(path.read_text(errors="replace").splitlines()[-lines:])


if __name__ == "__main__":
    main()
elif __name__ == "__mp_main__":  # a process that a test has spawned: it will import the test's file
    older_trees.apply()
