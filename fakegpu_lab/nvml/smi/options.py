"""nvidia-smi's command line."""

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

NOBODY = (
    "No simulated GPU is running. In a notebook, %fakegpu a100 enables one; in a terminal, "
    "fakegpu-lab run -d a100 script.py."
)
HELP = """\
nvidia-smi of fakegpu_lab: the simulated GPUs, in the layout of NVIDIA's tool.

  (nothing)                   the table: cards, memory, load, processes
  -L, --list-gpus             one line a card
  -q, --query                 all that is known; -d MEMORY,UTILIZATION,… only these sections
  --query-gpu=FIELD,…         a table of fields; --help-query-gpu lists them
  --query-compute-apps=FIELD,…
                              a table of processes; --help-query-compute-apps lists the fields
  --format=csv[,noheader][,nounits]
                              with the two above
  dmon, pmon                  load of cards, of processes, line by line (-s METRICS, -c COUNT, -d SECONDS)
  topo -m                     how the cards are joined
  -i, --id=ID,…               only these cards: index, UUID or bus id
  -l, --loop[=SECONDS]        again and again, every 5 seconds if none are given; -lms for milliseconds
  -f, --filename=FILE         write there
  --version, -h, --help
"""


class UsageError(Exception):
    """A command line that nvidia-smi refuses: what it prints, and its exit status."""

    def __init__(self, said: str, status: int = 1) -> None:
        super().__init__(said)
        self.status = status


@dataclass
class Asked:
    """What to do: `show` makes the text of one round; `loop` are the seconds between two, None for one alone."""

    show: Callable[[], str]
    loop: float | None = None
    out: str | None = None


@dataclass
class _Words:
    """The options, and what stood beside them."""

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
_MAYBE_VALUE = {"loop", "loop-ms"}
_BARE = {"list-gpus", "query", "help", "matrix", "version", "help-query-gpu", "help-query-compute-apps"}


def _words(arguments: Sequence[str]) -> _Words:
    words = _Words()
    waiting = list(arguments)
    while waiting:
        word = waiting.pop(0)
        if not word.startswith("-"):
            words.rest.append(word)
            continue
        name, equals, value = word.partition("=")
        full = _SHORT.get(name) or (name[2:] if name.startswith("--") else "")
        if words.rest[:1] in (["dmon"], ["pmon"]) and name == "-d":
            full = "delay"
        if full == "query-gpus":
            full = "query-gpu"
        if full not in _WITH_VALUE | _MAYBE_VALUE | _BARE:
            raise UsageError(f"Invalid combination of input arguments. Please run 'nvidia-smi -h' for help.\n\n{word}")
        if not equals and waiting and (full in _WITH_VALUE or (full in _MAYBE_VALUE and waiting[0].isdigit())):
            value = waiting.pop(0)
        elif full in _WITH_VALUE and not equals:
            raise UsageError(f"Option {word} is not recognized without a value. Please run 'nvidia-smi -h'.")
        words.given[full] = value
    return words


def parse(arguments: Sequence[str]) -> Asked:
    """Understand a command line.

    Raises
    ------
    UsageError
        It has an option, a field or a section that is none, or options that do not go together.
    """
    words = _words(arguments)
    if words.has("help"):
        return Asked(lambda: HELP)
    if words.has("version"):
        cuda = "{}.{}".format(*CUDA_VERSION)
        nvml = DRIVER_VERSION.rpartition(".")[0]
        return Asked(lambda: f"NVIDIA-SMI version  : {DRIVER_VERSION}\nNVML version        : {nvml}\n"
                             f"DRIVER version      : {DRIVER_VERSION}\nCUDA Version        : {cuda}\n")  # fmt: skip
    for switch in ("query-gpu", "query-compute-apps"):
        if words.has(f"help-{switch}"):
            return Asked(lambda switch=switch: fields.help_text(f"--{switch}"))  # type: ignore[misc]
    if words.rest[:1] == ["topo"]:
        if not words.has("matrix"):
            raise UsageError("nvidia-smi topo shows the matrix here: nvidia-smi topo -m")
        return Asked(
            lambda: _shown(words, lambda view, gpus: topology.matrix(view.topology, [g.card.index for g in gpus]))
        )
    if words.rest[:1] in (["dmon"], ["pmon"]):
        return _monitored(words)
    if words.rest:
        raise UsageError(
            f"Invalid combination of input arguments. Please run 'nvidia-smi -h' for help.\n\n{words.rest[0]}"
        )
    page = _page(words)
    return Asked(lambda: _shown(words, page), _loop(words), words.given.get("filename"))


def _page(words: _Words) -> Callable[[View, list[Gpu]], str]:
    """What makes the text of a machine's cards."""
    if words.has("list-gpus"):
        return lambda view, gpus: table.listed(gpus)
    for switch in ("query-gpu", "query-compute-apps"):
        if words.has(switch):
            return _csv(words, switch)
    if words.has("query"):
        sections = [one.strip().upper() for one in words.given.get("display", "").split(",") if one.strip()]
        for section in sections:
            if section not in details.SECTIONS:
                raise UsageError(f'"{section}" is not a valid argument to the -d option, but '
                                 f"{', '.join(details.SECTIONS)} are.")  # fmt: skip
        return lambda view, gpus: details.log(gpus, sections, len(view.gpus))
    if words.has("display"):
        raise UsageError("The -d option goes with -q: nvidia-smi -q -d MEMORY")
    return lambda view, gpus: table.table(gpus)


def _csv(words: _Words, switch: str) -> Callable[[View, list[Gpu]], str]:
    form = [one.strip() for one in words.given.get("format", "").split(",")]
    if "csv" not in form:
        raise UsageError(f"The --{switch} switch needs its format: --format=csv, and with it noheader and nounits.")
    names = [one.strip() for one in words.given[switch].split(",") if one.strip()]
    header, units = "noheader" not in form, "nounits" not in form
    known: dict[str, fields.Field] | dict[str, fields.AppField]
    known = fields.GPU_FIELDS if switch == "query-gpu" else fields.APP_FIELDS
    for name in names:
        if not any(name == full or name in one.aliases for full, one in known.items()):
            raise UsageError(f'Field "{name}" is not a valid field to query.\n', 2)
    if switch == "query-gpu":
        return lambda view, gpus: fields.gpus_csv(gpus, names, header=header, units=units, count=len(view.gpus))
    return lambda view, gpus: fields.apps_csv(gpus, names, header=header, units=units)


def _loop(words: _Words) -> float | None:
    if words.has("loop-ms"):
        return _seconds(words.given["loop-ms"] or "1000", "-lms") / 1000
    return _seconds(words.given["loop"] or "5", "-l") if words.has("loop") else None


def _seconds(text: str, option: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1
    if value <= 0:
        raise UsageError(f"{option} {text}: a number above 0 is wanted.")
    return value


def _monitored(words: _Words) -> Asked:
    processes = words.rest[0] == "pmon"
    metrics = words.given.get("select", "u" if processes else "puc")
    known = monitor.PROCESS_METRICS if processes else monitor.DEVICE_METRICS
    if not metrics or any(letter not in known for letter in metrics):
        raise UsageError(f"-s {metrics}: the metrics are {', '.join(known)}.")
    count = words.given.get("count")
    rounds = int(_seconds(count, "-c")) if count is not None else None
    watch = monitor.Monitor(metrics, processes=processes, date=words.given.get("options", ""), rounds=rounds)
    delay = _seconds(words.given.get("delay", "1"), "-d")
    return Asked(lambda: _shown(words, lambda view, gpus: watch.lines(gpus)), delay, words.given.get("filename"))


def _shown(words: _Words, page: Callable[[View, list[Gpu]], str]) -> str:
    """The text of the machine of this process, or of all machines of this user, each under a line that says which."""
    found = discovery.current()
    views = [found] if found is not None else discovery.machines()
    if not views:
        raise FakeGpuError(NOBODY)
    texts = []
    for number, view in enumerate(views, 1):
        text = page(view, _chosen(view, words.given.get("id")))
        if len(views) > 1:
            pids = ", ".join(map(str, view.pids))
            text = f"# machine {number} of {len(views)}: {view.spec}, of process {pids}\n{text}"
        texts.append(text)
    return "\n".join(texts)


def _chosen(view: View, ids: str | None) -> list[Gpu]:
    if ids is None:
        return view.gpus
    found = []
    for one in ids.split(","):
        wanted = one.strip()
        fits = [gpu for gpu in view.gpus if _is(gpu, wanted)]
        if not fits:
            raise UsageError("No devices were found" if not re.fullmatch(r"\d+", wanted) else
                             f"No devices were found: there is no GPU {wanted}.", 6)  # fmt: skip
        found += fits
    return found


def _is(gpu: Gpu, wanted: str) -> bool:
    card = gpu.card
    if wanted.isdigit():
        return card.index == int(wanted)
    return wanted == card.uuid or card.bus_id.upper().endswith(wanted.upper().removeprefix("0000:"))
