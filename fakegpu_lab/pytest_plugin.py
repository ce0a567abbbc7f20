"""The pytest plugin: ``pytest --gpus a100:2`` runs a test suite on simulated GPUs, without changes to the tests.

Nothing happens without the option (or ``gpus`` in the ini file). With it, whoever imports torch first, a conftest.py or
a test, finds the GPUs, and so does ``skipif(not torch.cuda.is_available())``; a suite without torch does not wait for
it. A test finds the machine as a new process would: the first device current, no peaks, the default seeds, no failed
device assert. What a fixture of a module or a session keeps on a device stays there.
"""

from __future__ import annotations

import contextlib
import os
import sys
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import torch

    from fakegpu_lab.hardware.machine import Machine

_SEED = 67280421310721
"""The seed of generators that nobody has seeded (c10/core/GeneratorImpl.h: ``default_rng_seed_val``)."""
_REAL = "auto"


class Gpus:
    """The GPUs of a test session.

    Parameters
    ----------
    option
        What ``--gpus`` said: ``"a100:2"``; ``"auto"`` or ``"auto:a100:2"`` take the computer's own GPUs if it has any.
    """

    def __init__(self, option: str) -> None:
        word, _, rest = option.partition(":")
        self.spec = (rest or "a100") if word == _REAL else option
        self.real = word == _REAL and _computer_has_gpus()
        self._asked: tuple[tuple[str, Any], ...] | None = None

    def begin(self) -> None:
        """Enable the machine of all tests that ask for no other one."""
        if not self.real:
            self._enable({"spec": self.spec})

    def _enable(self, asked: dict[str, Any]) -> None:
        """Enable a machine: now, or as soon as torch is imported."""
        from fakegpu_lab import session

        enable = session.enable if "torch" in sys.modules else session.enable_on_import
        enable(**asked)
        self._asked = tuple(sorted(asked.items()))

    def prepare(self, item: pytest.Item) -> None:
        """Give a test the machine that it asks for, as empty as tests before it left it."""
        asked = _asked_by(item)
        if self.real:
            self._prepare_real(asked)
            return
        from fakegpu_lab import session
        from fakegpu_lab.processes import inheritance

        wanted = {"spec": self.spec} if asked is None else asked
        there = session.enabled() if "torch" in sys.modules else inheritance.VARIABLE in os.environ
        if self._asked != tuple(sorted(wanted.items())) or not there:
            self._enable(wanted)
        elif session.enabled() and any(card.retired for card in session.machine().cards):
            session.reset()  # a kernel of an earlier test failed an assert, which ends a process's use of a card
        if "torch" in sys.modules:
            _forget()

    def _prepare_real(self, asked: dict[str, Any] | None) -> None:
        import torch

        count = torch.cuda.device_count()
        wanted = sum(int(part.partition(":")[2] or 1) for part in (asked or {"spec": "x"})["spec"].split(","))
        if count < wanted:
            pytest.skip(f"needs {wanted} GPUs; this computer has {count}")
        _forget()

    def header(self) -> str:
        """What pytest's header says."""
        if self.real:
            import torch

            return f"gpus: {torch.cuda.device_count()} of this computer's own ({torch.cuda.get_device_name(0)})"
        import fakegpu_lab as lab
        from fakegpu_lab.hardware.catalogue.spec import parse_spec

        names = [card.name for card in parse_spec(self.spec).gpus]
        kinds = ", ".join(f"{names.count(name)} x {name}" for name in dict.fromkeys(names))
        return f"gpus: {kinds}, simulated by fakegpu-lab {lab.__version__}"


def _computer_has_gpus() -> bool:
    import torch  # only torch knows whether it can use them

    return torch.version.cuda is not None and torch.cuda.is_available()


def _asked_by(item: pytest.Item) -> dict[str, Any] | None:
    """What a test's marker asks for: ``@pytest.mark.gpus("t4:4", memory="2GiB")``."""
    marker = item.get_closest_marker("gpus")
    if marker is None:
        return None
    if len(marker.args) > 1:
        pytest.fail(
            '@pytest.mark.gpus takes a spec, such as "t4:4", and keywords of fakegpu_lab.enable.', pytrace=False
        )
    return {"spec": "a100", **dict(zip(["spec"], marker.args, strict=False)), **marker.kwargs}


def _forget() -> None:
    """Bring torch.cuda's state back to that of a new process, but for memory that somebody holds."""
    import torch

    torch.cuda.set_device(0)
    for index in range(torch.cuda.device_count()):
        torch.cuda.set_stream(torch.cuda.default_stream(index))
    torch.cuda.set_device(0)
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    for index in range(torch.cuda.device_count()):
        torch.cuda.reset_peak_memory_stats(index)
        torch.cuda.reset_accumulated_memory_stats(index)
    torch.cuda.manual_seed_all(_SEED)


_GPUS = pytest.StashKey[Gpus]()


def _of(config: pytest.Config) -> Gpus | None:
    return config.stash.get(_GPUS, None)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--gpus``, and ``gpus`` to the ini file."""
    group = parser.getgroup("gpus", "simulated GPUs (fakegpu-lab)")
    group.addoption(
        "--gpus",
        metavar="SPEC",
        default=None,
        help='run the tests on these simulated GPUs: "a100:2", "t4", "dgx-a100"; "auto:a100:2" takes real ones if the '
        'computer has any; "none" overrides the ini file',
    )
    parser.addini("gpus", "the GPUs on which to run the tests, like --gpus", default="")


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Enable the GPUs, now or when torch is imported, before anything of the test suite is imported."""
    option = early_config.known_args_namespace.gpus
    spec = early_config.getini("gpus") if option is None else option
    if not spec or spec == "none":
        return
    from fakegpu_lab.hardware.errors import FakeGpuError

    gpus = Gpus(spec)
    try:
        gpus.begin()
    except FakeGpuError as error:
        raise pytest.UsageError(f"--gpus {spec}: {error}") from None
    early_config.stash[_GPUS] = gpus


def pytest_configure(config: pytest.Config) -> None:
    """Describe the markers."""
    config.addinivalue_line(
        "markers", 'gpus(spec, **options): the GPUs of this test, like fakegpu_lab.enable("t4:4", memory="2GiB")'
    )
    config.addinivalue_line("markers", "ranks(n): run this test as n ranks, each with its RANK and WORLD_SIZE")


def pytest_unconfigure(config: pytest.Config) -> None:
    """Take the GPUs away: a program that calls pytest.main may go on."""
    gpus = _of(config)
    if gpus is not None and not gpus.real:
        import fakegpu_lab as lab

        lab.disable()


def pytest_report_header(config: pytest.Config) -> str | None:
    """Say which GPUs the tests see."""
    gpus = _of(config)
    return gpus.header() if gpus is not None else None


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Prepare the machine, before any fixture of the test."""
    gpus = _of(item.config)
    if gpus is not None:
        gpus.prepare(item)
    elif any(item.get_closest_marker(name) for name in ("gpus", "ranks")):
        pytest.skip("needs GPUs: run pytest --gpus a100")


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is marked with ``ranks(n)`` as n ranks; a hang fails at once, with its reason."""
    marker = pyfuncitem.get_closest_marker("ranks")
    gpus = _of(pyfuncitem.config)
    if marker is None or gpus is None:
        return None
    if gpus.real:
        pytest.skip("ranks in one process need simulated GPUs: use torchrun on this computer's own")
    if len(marker.args) != 1 or marker.kwargs or type(marker.args[0]) is not int:
        pytest.fail("@pytest.mark.ranks takes the number of ranks: @pytest.mark.ranks(4).", pytrace=False)
    import fakegpu_lab as lab

    given = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    test = pyfuncitem.obj

    def rank() -> None:
        __tracebackhide__ = True
        test(**given)

    lab.run_ranks(rank, marker.args[0])
    return True


def _session(request: pytest.FixtureRequest) -> Gpus:
    gpus = _of(request.config)
    if gpus is None:
        pytest.skip("needs GPUs: run pytest --gpus a100")
    return gpus


@pytest.fixture
def gpu(request: pytest.FixtureRequest) -> torch.device:
    """The first GPU, a ``torch.device``; the test is skipped if pytest runs without ``--gpus``."""
    import torch

    _session(request)
    return torch.device("cuda", 0)


@pytest.fixture
def gpus(request: pytest.FixtureRequest) -> list[torch.device]:
    """All GPUs of the test."""
    import torch

    _session(request)
    return [torch.device("cuda", index) for index in range(torch.cuda.device_count())]


@pytest.fixture
def gpu_machine(request: pytest.FixtureRequest) -> Machine:
    """The simulated machine (`fakegpu_lab.machine`); the test is skipped on real GPUs."""
    import fakegpu_lab as lab

    if _session(request).real:
        pytest.skip("needs simulated GPUs")
    return lab.machine()


@contextlib.contextmanager
def _recorded(request: pytest.FixtureRequest, name: str, **limits: Any) -> Iterator[Any]:
    """Record what runs inside of a ``with``, and then expect something of the recording."""
    __tracebackhide__ = True
    import fakegpu_lab as lab
    from fakegpu_lab.trace import Trace

    if _session(request).real:
        pytest.skip(f"assert_{name} needs simulated GPUs")
    with Trace(lab.machine()) as trace:
        yield trace
    if name == "sync":
        lab.expect.no_sync_in(trace, **limits)
    elif name == "peak_memory":
        lab.expect.peak_memory(trace=trace, **limits)
    else:
        lab.expect.transfers(trace=trace, **limits)


@pytest.fixture
def assert_no_sync(request: pytest.FixtureRequest) -> Callable[..., contextlib.AbstractContextManager[Any]]:
    """``with assert_no_sync():`` fails if the host waits for a GPU; ``at_most=2`` allows two waits."""
    return lambda **limits: _recorded(request, "sync", **limits)


@pytest.fixture
def assert_peak_memory(request: pytest.FixtureRequest) -> Callable[..., contextlib.AbstractContextManager[Any]]:
    """``with assert_peak_memory(below="4GiB", device=0):`` fails if tensors take more at their peak."""
    return lambda **limits: _recorded(request, "peak_memory", **limits)


@pytest.fixture
def assert_transfers(request: pytest.FixtureRequest) -> Callable[..., contextlib.AbstractContextManager[Any]]:
    """``with assert_transfers(h2d=1, d2h=0):`` counts copies, like `fakegpu_lab.expect.transfers`."""
    return lambda **limits: _recorded(request, "transfers", **limits)
