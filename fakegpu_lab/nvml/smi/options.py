"""nvidia-smi's command line: its options, and the page that they choose."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fakegpu_lab.hardware.errors import FakeGpuError
from fakegpu_lab.nvml import CUDA_VERSION, DRIVER_VERSION, discovery, topology
from fakegpu_lab.nvml.smi import details, fields, monitor, table

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fakegpu_lab.nvml.view import Gpu, View

NO_MACHINE = (
    "No simulated GPU is running. In a notebook, %fakegpu a100 enables one; in a terminal, "
    "fakegpu-lab run -d a100 script.py."
)
HELP = """\
nvidia-smi of fakegpu_lab: the simulated GPUs, in the layout of NVIDIA's tool.

  (nothing)                   the table: cards, memory, load, processes
  -L, --list-gpus             one line for each card
  -q, --query                 all details; -d MEMORY,UTILIZATION,… only these sections
  --query-gpu=FIELD,…         a table of fields; --help-query-gpu lists them
  --query-compute-apps=FIELD,…
                              a table of processes; --help-query-compute-apps lists the fields
  --format=csv[,noheader][,nounits]
                              the format of the two above
  dmon, pmon                  the load of cards, or of processes, line by line (-s METRICS, -c COUNT, -d SECONDS)
  topo -m                     how the cards are connected
  -i, --id=ID,…               only these cards: index, UUID or bus id
  -l, --loop[=SECONDS]        repeatedly, every 5 seconds by default; -lms for milliseconds
  -f, --filename=FILE         write to this file
  --version, -h, --help
"""


_INVALID = "Invalid combination of input arguments. Please run 'nvidia-smi -h' for help.\n\n"


class UsageError(Exception):
    """A command line that nvidia-smi rejects: the message that it prints, and its exit status."""

    def __init__(self, message: str, status: int = 1) -> None:
        super().__init__(message)
        self.status = status


@dataclass
class Command:
    """What to do: `show` makes the text of one round; `interval` is the seconds between rounds, None for one round."""

    show: Callable[[], str]
    interval: float | None = None
    filename: str | None = None


@dataclass
class _Options:
    """The options with their values, and the words that are no options (``dmon``, ``topo``)."""

    given: dict[str, str] = field(default_factory=dict)
    rest: list[str] = field(default_factory=list)

    def has(self, name: str) -> bool:
        return name in self.given


_SHORT = {
    "-L": "list-gpus", "-q": "query", "-d": "display", "-i": "id", "-l": "loop", "-lms": "loop-ms", "-f": "filename",
    "-h": "help", "-s": "select", "-c": "count", "-o": "options", "-m": "matrix", "-v": "version",
}  # fmt: skip
_WITH_VALUE = {"display", "id", "filename", "select", "count", "options", "query-gpu", "query-compute-apps", "format",
               "delay"}  # fmt: skip
_OPTIONAL_VALUE = {"loop", "loop-ms"}
_WITHOUT_VALUE = {"list-gpus", "query", "help", "matrix", "version", "help-query-gpu", "help-query-compute-apps"}


def _parse_options(arguments: Sequence[str]) -> _Options:
    options = _Options()
    waiting = list(arguments)
    while waiting:
        word = waiting.pop(0)
        if not word.startswith("-"):
            options.rest.append(word)
            continue
        short_or_long, equals, value = word.partition("=")
        name = _option_name(short_or_long, options.rest)
        if name is None:
            raise UsageError(f"{_INVALID}{word}")
        if not equals and waiting and (name in _WITH_VALUE or (name in _OPTIONAL_VALUE and waiting[0].isdigit())):
            value = waiting.pop(0)
        elif name in _WITH_VALUE and not equals:
            raise UsageError(f"Option {word} is not recognized without a value. Please run 'nvidia-smi -h'.")
        options.given[name] = value
    return options


def _option_name(text: str, rest: list[str]) -> str | None:
    """An option's long name without its dashes; None for an unknown option."""
    if text == "-d" and rest[:1] in (["dmon"], ["pmon"]):
        return "delay"
    name = _SHORT.get(text) or (text[2:] if text.startswith("--") else "")
    name = {"query-gpus": "query-gpu"}.get(name, name)
    return name if name in _WITH_VALUE | _OPTIONAL_VALUE | _WITHOUT_VALUE else None


def parse(arguments: Sequence[str]) -> Command:
    """Parse a command line.

    Raises
    ------
    UsageError
        If an option, a field or a section is unknown, or options do not go together.
    """
    options = _parse_options(arguments)
    if options.has("help"):
        return Command(lambda: HELP)
    if options.has("version"):
        cuda = "{}.{}".format(*CUDA_VERSION)
        nvml = DRIVER_VERSION.rpartition(".")[0]
        return Command(lambda: f"NVIDIA-SMI version  : {DRIVER_VERSION}\nNVML version        : {nvml}\n"
                             f"DRIVER version      : {DRIVER_VERSION}\nCUDA Version        : {cuda}\n")  # fmt: skip
    for switch in ("query-gpu", "query-compute-apps"):
        if options.has(f"help-{switch}"):
            return Command(lambda switch=switch: fields.help_text(f"--{switch}"))  # type: ignore[misc]
    if options.rest[:1] == ["topo"]:
        if not options.has("matrix"):
            raise UsageError("nvidia-smi topo shows the matrix here: nvidia-smi topo -m")
        return Command(
            lambda: _show(options, lambda view, gpus: topology.matrix(view.topology, [g.card.index for g in gpus]))
        )
    if options.rest[:1] in (["dmon"], ["pmon"]):
        return _monitor(options)
    if options.rest:
        raise UsageError(f"{_INVALID}{options.rest[0]}")
    page = _page(options)
    return Command(lambda: _show(options, page), _interval(options), options.given.get("filename"))


def _page(options: _Options) -> Callable[[View, list[Gpu]], str]:
    """The function that makes the text of a machine's cards."""
    if options.has("list-gpus"):
        return lambda view, gpus: table.listed(gpus)
    for switch in ("query-gpu", "query-compute-apps"):
        if options.has(switch):
            return _csv_page(options, switch)
    if options.has("query"):
        sections = [one.strip().upper() for one in options.given.get("display", "").split(",") if one.strip()]
        for section in sections:
            if section not in details.SECTIONS:
                raise UsageError(f'"{section}" is not a valid argument to the -d option, but '
                                 f"{', '.join(details.SECTIONS)} are.")  # fmt: skip
        return lambda view, gpus: details.log(gpus, sections, len(view.gpus))
    if options.has("display"):
        raise UsageError("The -d option goes with -q: nvidia-smi -q -d MEMORY")
    return lambda view, gpus: table.table(gpus)


def _csv_page(options: _Options, switch: str) -> Callable[[View, list[Gpu]], str]:
    form = [one.strip() for one in options.given.get("format", "").split(",")]
    if "csv" not in form:
        raise UsageError(f"The --{switch} switch needs its format: --format=csv, and with it noheader and nounits.")
    names = [one.strip() for one in options.given[switch].split(",") if one.strip()]
    header, units = "noheader" not in form, "nounits" not in form
    try:
        if switch == "query-gpu":
            of_gpus = fields.named(names, fields.GPU_FIELDS)
            return lambda view, gpus: fields.gpus_csv(gpus, of_gpus, header=header, units=units, count=len(view.gpus))
        of_apps = fields.named(names, fields.APP_FIELDS)
        return lambda view, gpus: fields.apps_csv(gpus, of_apps, header=header, units=units)
    except fields.UnknownFieldError as error:
        raise UsageError(f'Field "{error.args[0]}" is not a valid field to query.\n', 2) from None


def _interval(options: _Options) -> float | None:
    if options.has("loop-ms"):
        return _seconds(options.given["loop-ms"] or "1000", "-lms") / 1000
    return _seconds(options.given["loop"] or "5", "-l") if options.has("loop") else None


def _seconds(text: str, option: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1
    if value <= 0:
        raise UsageError(f"{option} {text}: this must be a number above 0.")
    return value


def _monitor(options: _Options) -> Command:
    processes = options.rest[0] == "pmon"
    metrics = options.given.get("select", "u" if processes else "puc")
    known = monitor.PROCESS_METRICS if processes else monitor.DEVICE_METRICS
    if not metrics or any(letter not in known for letter in metrics):
        raise UsageError(f"-s {metrics}: the metrics are {', '.join(known)}.")
    count = options.given.get("count")
    rounds = int(_seconds(count, "-c")) if count is not None else None
    watch = monitor.Monitor(metrics, processes=processes, date=options.given.get("options", ""), rounds=rounds)
    delay = _seconds(options.given.get("delay", "1"), "-d")
    return Command(lambda: _show(options, lambda view, gpus: watch.lines(gpus)), delay, options.given.get("filename"))


def _show(options: _Options, page: Callable[[View, list[Gpu]], str]) -> str:
    """The text of this process's machine, or of all machines of this user, each below a line that says which."""
    found = discovery.current()
    views = [found] if found is not None else discovery.machines()
    if not views:
        raise FakeGpuError(NO_MACHINE)
    texts = []
    for number, view in enumerate(views, 1):
        text = page(view, _selected(view, options.given.get("id")))
        if len(views) > 1:
            pids = ", ".join(map(str, view.pids))
            text = f"# machine {number} of {len(views)}: {view.spec}, of process {pids}\n{text}"
        texts.append(text)
    return "\n".join(texts)


def _selected(view: View, ids: str | None) -> list[Gpu]:
    if ids is None:
        return view.gpus
    found = []
    for one in ids.split(","):
        wanted = one.strip()
        fits = [gpu for gpu in view.gpus if _matches(gpu, wanted)]
        if not fits:
            raise UsageError("No devices were found" if not re.fullmatch(r"\d+", wanted) else
                             f"No devices were found: there is no GPU {wanted}.", 6)  # fmt: skip
        found += fits
    return found


def _matches(gpu: Gpu, wanted: str) -> bool:
    card = gpu.card
    if wanted.isdigit():
        return card.index == int(wanted)
    return wanted == card.uuid or card.bus_id.upper().endswith(wanted.upper().removeprefix("0000:"))
