"""`torch.profiler` with CUDA activity: the simulated kernels, copies and waits, in simulated time.

The host's half of the profiler, Kineto, is real: it records every op, `record_function` range and autograd node, and
how they nest. Its times are the wall clock's and are thrown away. While it runs, each op that reaches the simulation
leaves a *mark* in Kineto's record (an event with a number), and `Session` notes the simulated time under that number.
When the profiler stops, `results.assemble` joins the two.

The functions of ``torch._C._autograd`` that torch/autograd/profiler.py calls are replaced, so everything above them
(schedules, tables, averages, traces) is torch's own.
"""

from __future__ import annotations

import contextlib
import functools
import os
from typing import TYPE_CHECKING, Any

import torch
import torch.profiler
from torch._C._profiler import ProfilerActivity, ProfilerState
from torch.autograd import profiler

from fakegpu_lab.driver.base import cuda_messages
from fakegpu_lab.driver.base.changes import begun, computed, replaced, wrapped
from fakegpu_lab.driver.base.not_simulated import error
from fakegpu_lab.driver.profiler.events import MARK
from fakegpu_lab.driver.profiler.results import Results, assemble
from fakegpu_lab.driver.profiler.session import Session, as_on_cuda, kineto_range
from fakegpu_lab.driver.recorder import recording
from fakegpu_lab.hardware.time.clock import here

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from fakegpu_lab.driver.base.changes import Change

_CUDA = ProfilerActivity.CUDA
_scripting: Any = torch.jit.is_scripting  # type: ignore[attr-defined]
_LOG_LEVEL = "KINETO_LOG_LEVEL"


class _Legacy(set[ProfilerActivity]):
    """The activities of ``use_kineto=False``, which times each op with two events and sees no kernels."""


_session: Session | None = None
_CONFIG: Any = torch._C._profiler._ExperimentalConfig
_SYNC_EVENTS = [
    yes != no
    for yes, no in zip(_CONFIG(enable_cuda_sync_events=True).__getstate__(), _CONFIG().__getstate__(), strict=True)
].index(True)
"""The place of ``enable_cuda_sync_events`` in a configuration's state; it differs between versions of torch."""
_always_syncs = False


def run(func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None) -> Any:
    """`recording.run`, with a mark in Kineto's record."""
    __tracebackhide__ = True
    session = _session
    if session is None:
        return recording.run(func, types, args, kwargs)
    host = here.host
    lane = session.lane(host)
    number = next(session.numbers)
    lane.append(("begin", number, host.now, as_on_cuda(func, args)))
    try:
        with kineto_range(f"{MARK}{number}"):
            return recording.run(func, types, args, kwargs)
    finally:
        lane.append(("end", number, host.now))


def _begin(session: Session) -> None:
    global _session
    _end()  # Kineto runs one profiler at a time: a second one takes over, and the first one has no results
    assert session.machine is not None
    recording.start(session.machine, session)
    recording.record_through(run)
    _session = session
    cuda_messages.oom_observers.append(session.out_of_memory)
    if session.cuda:
        session.mark()


def _end() -> Session | None:
    global _session
    session, _session = _session, None
    if session is not None:
        assert session.machine is not None
        recording.stop(session.machine, session)
        recording.record_through(None)
        if session.out_of_memory in cuda_messages.oom_observers:  # the machine may be gone
            cuda_messages.oom_observers.remove(session.out_of_memory)
    return session


def _host_activities(activities: Iterable[ProfilerActivity]) -> set[ProfilerActivity]:
    """What Kineto itself records: always the host's ops, because the marks lie within them."""
    return (set(activities) - {_CUDA}) | {ProfilerActivity.CPU}


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Silence what Kineto prints when it is first used: its marks of the start and the end ("USDT", level 5).

    In a CUDA build it also looks for cards then, and would print an error: there are none.
    """
    if _LOG_LEVEL in os.environ:
        yield
        return
    os.environ[_LOG_LEVEL] = "6"
    try:
        yield
    finally:
        os.environ.pop(_LOG_LEVEL, None)


def _shows_syncs(starting: list[Any]) -> bool:
    config = getattr(starting[-1], "experimental_config", None) if starting else None
    return config is not None and bool(config.__getstate__()[_SYNC_EVENTS])


def _set_always_syncs(value: bool) -> None:
    """``_set_cuda_sync_enabled_val``: what the configuration says, for all profilers."""
    global _always_syncs
    _always_syncs = value


def _memory_timeline(original: Any) -> Any:
    """`export_memory_timeline`, which reads what a card's allocator has told Kineto."""

    @functools.wraps(original)
    def export_memory_timeline(self: Any, path: str, device: str | None = None) -> None:
        if (device or self.use_device or "cuda").startswith("cuda"):
            raise error("memory timelines")
        original(self, path, device)

    return export_memory_timeline


def _changes() -> list[Change]:
    """The functions that torch/autograd/profiler.py calls, and `record_function`."""
    originals: Any = profiler
    supported, prepare, enable = (
        originals._supported_activities,
        originals._prepare_profiler,
        originals._enable_profiler,
    )
    disable, toggle = originals._disable_profiler, originals._toggle_collection_dynamic
    add_metadata = torch._C._autograd._add_metadata_json
    profile: Any = profiler.profile
    init, export = profile.__init__, profile.export_chrome_trace
    annotation: Any = profiler.record_function
    enter, leave = annotation.__enter__, annotation.__exit__
    starting: list[Any] = []

    @functools.wraps(init)
    def init_(self: Any, *args: Any, **kwargs: Any) -> None:
        init(self, *args, **kwargs)
        if getattr(self, "profiler_kind", None) is ProfilerState.KINETO_GPU_FALLBACK:
            self.profiler_kind = ProfilerState.KINETO
            self.kineto_activities = _Legacy(self.kineto_activities | {_CUDA})

    def prepare_(config: Any, activities: Any, **kwargs: Any) -> None:
        if kwargs.get("activity_filter"):
            kwargs["activity_filter"] = {k: v for k, v in kwargs["activity_filter"].items() if k is not _CUDA}
        with _quiet():
            prepare(config, _host_activities(activities), **kwargs)

    def enable_(config: Any, activities: Any) -> None:
        with _quiet():
            enable(config, _host_activities(activities))
        cuda, memory = _CUDA in activities, bool(starting and starting[-1].profile_memory)
        if cuda or memory:  # a device's memory is reported whatever the activities are
            legacy = isinstance(activities, _Legacy)
            host_ops, syncs = ProfilerActivity.CPU in activities, _always_syncs or _shows_syncs(starting)
            _begin(Session(memory=memory, legacy=legacy, host_ops=host_ops, cuda=cuda, syncs=syncs))

    def disable_() -> Any:
        session = _end()
        results = disable()
        return assemble(session, results) if session is not None and session.lanes else results

    def add_metadata_(key: str, text: str) -> None:
        if _session is not None:
            _session.metadata[key] = text
        add_metadata(key, text)

    def toggle_(on: bool, activities: Iterable[ProfilerActivity]) -> None:
        if _session is not None and _CUDA in activities:
            _session.collecting = on
        if host := set(activities) - {_CUDA}:
            toggle(on, host)

    start = profile._start_trace

    @functools.wraps(start)
    def start_(self: Any) -> None:
        starting.append(self)
        try:
            start(self)
        finally:
            starting.pop()

    @functools.wraps(export)
    def export_(self: Any, path: str, metadata: Any = None, **kwargs: Any) -> None:
        if isinstance(self.kineto_results, Results):
            self.kineto_results.save(path, metadata)
        else:
            export(self, path, *(() if metadata is None else (metadata,)), **kwargs)

    @functools.wraps(enter)
    def enter_(self: Any) -> Any:
        if _session is not None and _session.cuda and not _scripting():
            _session.mark()
        return enter(self)

    @functools.wraps(leave)
    def leave_(self: Any, *exception: Any) -> Any:
        if _session is not None and _session.cuda and not _scripting():
            _session.mark()
        return leave(self, *exception)

    with_cuda = lambda: supported() | {_CUDA}  # noqa: E731
    module = "torch.autograd.profiler"
    return [
        begun(_begin_without, "no session runs"),
        replaced("torch._C._profiler._set_cuda_sync_enabled_val", _set_always_syncs, _WHY),
        replaced("torch.autograd._supported_activities", with_cuda, _WHY),
        replaced("torch.autograd._add_metadata_json", add_metadata_, _WHY),
        replaced(f"{module}._supported_activities", with_cuda, _WHY),
        replaced(f"{module}._prepare_profiler", prepare_, _WHY),
        replaced(f"{module}._enable_profiler", enable_, _WHY),
        replaced(f"{module}._disable_profiler", disable_, _WHY),
        replaced(f"{module}._toggle_collection_dynamic", toggle_, _WHY),
        replaced(f"{module}.profile.__init__", init_, _WHY),
        replaced(f"{module}.profile._start_trace", start_, _WHY),
        replaced(f"{module}.profile.export_chrome_trace", export_, _WHY),
        wrapped("torch.profiler.profiler._KinetoProfile.export_memory_timeline", _memory_timeline, _WHY),
        replaced(f"{module}.record_function.__enter__", enter_, _WHY),
        replaced(f"{module}.record_function.__exit__", leave_, _WHY),
    ]


def _begin_without() -> Callable[[], object]:
    _set_always_syncs(False)
    return _end


_WHY = "torch's profiler shows the simulated kernels"
CHANGES = [computed(_changes, _WHY)]
