"""nvidia-smi for the simulated GPUs: its command line. Start with `main`.

It has what courses and scripts use: the `table`, the list of ``-L``, and the `fields` of ``--query-gpu`` and
``--query-compute-apps``. Any other is refused in one sentence.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

from fakegpu_lab.hardware.errors import FakeGpuError
from fakegpu_lab.nvml import CUDA_VERSION, DRIVER_VERSION, discovery, fields, table

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fakegpu_lab.nvml.view import Gpu, View

    Page = Callable[[View, list[Gpu]], str]

NO_MACHINE = (
    "No simulated GPU is running. In a notebook, %fakegpu a100 enables one; in a terminal, "
    "fakegpu-lab run -d a100 script.py."
)
HELP = """\
nvidia-smi of fakegpu_lab: the simulated GPUs, in the layout of NVIDIA's tool.

  (nothing)                   the table: cards, memory, load, processes
  -L, --list-gpus             one line for each card
  --query-gpu=FIELD,…         a table of fields; --help-query-gpu lists them
  --query-compute-apps=FIELD,…
                              a table of processes; --help-query-compute-apps lists the fields
  --format=csv[,noheader][,nounits]
                              the format of the two above
  -i, --id=ID,…               only these cards: index, UUID or bus id
  -l, --loop[=SECONDS]        repeatedly, every 5 seconds by default; -lms for milliseconds
  -f, --filename=FILE         write to this file
  --version, -h, --help
"""
_VERSION = (
    f"NVIDIA-SMI version  : {DRIVER_VERSION}\nNVML version        : {DRIVER_VERSION.rpartition('.')[0]}\n"
    f"DRIVER version      : {DRIVER_VERSION}\nCUDA Version        : {CUDA_VERSION[0]}.{CUDA_VERSION[1]}\n"
)
_SHORT = {"-L": "list-gpus", "-q": "query", "-i": "id", "-l": "loop", "-lms": "loop-ms", "-f": "filename",
          "-h": "help", "-v": "version"}  # fmt: skip
_WITH_VALUE = {"id", "filename", "query-gpu", "query-compute-apps", "format"}
_OPTIONAL_VALUE = {"loop", "loop-ms"}
_WITHOUT_VALUE = {"list-gpus", "help", "version", "help-query-gpu", "help-query-compute-apps"}


class _UsageError(Exception):
    """A command line that nvidia-smi rejects: the message that it prints, and its exit status."""

    def __init__(self, message: str, status: int = 1) -> None:
        super().__init__(message)
        self.status = status


def main(arguments: list[str]) -> int:
    """Run nvidia-smi and return its exit status: 0; 1 for a mistake, 2 for an unknown field, 6 for an unknown card."""
    try:
        options = _parse(arguments)
        page = _page(options)
        interval = None if isinstance(page, str) else _interval(options)
        while True:
            _write(_text(page, options), options.get("filename"))
            if interval is None:
                return 0
            time.sleep(interval)
    except _UsageError as error:
        print(error.args[0])
        return error.status
    except FakeGpuError as error:
        print(f"fakegpu-lab: {error}", file=sys.stderr)
        return 9
    except KeyboardInterrupt:
        return 0
    except BrokenPipeError:
        sys.stderr.close()
        return 0


def _parse(arguments: Sequence[str]) -> dict[str, str]:
    """The options with their values, by their long names without dashes."""
    options = {}
    waiting = list(arguments)
    while waiting:
        word = waiting.pop(0)
        short_or_long, equals, value = word.partition("=")
        name = _SHORT.get(short_or_long) or short_or_long.removeprefix("--")
        name = "query-gpu" if name == "query-gpus" else name
        if name not in _WITH_VALUE | _OPTIONAL_VALUE | _WITHOUT_VALUE:
            raise _UsageError(
                f"nvidia-smi {short_or_long} is not simulated. Available are nvidia-smi (the table), nvidia-smi -L, "
                "nvidia-smi --query-gpu=name,memory.used --format=csv and nvidia-smi "
                "--query-compute-apps=pid,used_memory --format=csv."
            )
        if not equals and waiting and (name in _WITH_VALUE or (name in _OPTIONAL_VALUE and waiting[0].isdigit())):
            value = waiting.pop(0)
        elif name in _WITH_VALUE and not equals:
            raise _UsageError(f"Option {word} is not recognized without a value. Please run 'nvidia-smi -h'.")
        options[name] = value
    return options


def _page(options: dict[str, str]) -> str | Page:
    """The text that the options choose, or the function that makes it for a machine."""
    if "help" in options:
        return HELP
    if "version" in options:
        return _VERSION
    for switch in ("query-gpu", "query-compute-apps"):
        if f"help-{switch}" in options:
            return fields.help_text(f"--{switch}")
    if "list-gpus" in options:
        return lambda view, gpus: table.listed(gpus)
    for switch in ("query-gpu", "query-compute-apps"):
        if switch in options:
            return _csv_page(options, switch)
    return lambda view, gpus: table.table(gpus)


def _csv_page(options: dict[str, str], switch: str) -> Page:
    form = [one.strip() for one in options.get("format", "").split(",")]
    if "csv" not in form:
        raise _UsageError(f"The --{switch} switch needs its format: --format=csv, and with it noheader and nounits.")
    names = [one.strip() for one in options[switch].split(",") if one.strip()]
    header, units = "noheader" not in form, "nounits" not in form
    try:
        if switch == "query-gpu":
            of_gpus = fields.named(names, fields.GPU_FIELDS)
            return lambda view, gpus: fields.gpus_csv(gpus, of_gpus, header=header, units=units, count=len(view.gpus))
        of_apps = fields.named(names, fields.APP_FIELDS)
        return lambda view, gpus: fields.apps_csv(gpus, of_apps, header=header, units=units)
    except fields.UnknownFieldError as error:
        raise _UsageError(f'Field "{error.args[0]}" is not a valid field to query.\n', 2) from None


def _interval(options: dict[str, str]) -> float | None:
    """Seconds between two rounds; None for one round."""
    name = "loop-ms" if "loop-ms" in options else "loop"
    if name not in options:
        return None
    text = options[name] or {"loop": "5", "loop-ms": "1000"}[name]
    try:
        value = float(text)
    except ValueError:
        value = -1
    if value <= 0:
        raise _UsageError(f"--{name} {text}: this must be a number above 0.")
    return value / 1000 if name == "loop-ms" else value


def _text(page: str | Page, options: dict[str, str]) -> str:
    """The text of this process's machine, or of all machines of this user, each below a line that says which."""
    if isinstance(page, str):
        return page
    found = discovery.current()
    views = [found] if found is not None else discovery.machines()
    if not views:
        raise FakeGpuError(NO_MACHINE)
    texts = [page(view, _selected(view, options.get("id"))) for view in views]
    if len(views) == 1:
        return texts[0]
    return "\n".join(
        f"# machine {number} of {len(views)}: {view.spec}, of process {', '.join(map(str, view.pids))}\n{text}"
        for number, (view, text) in enumerate(zip(views, texts, strict=True), 1)
    )


def _selected(view: View, ids: str | None) -> list[Gpu]:
    if ids is None:
        return view.gpus
    found = []
    for one in ids.split(","):
        wanted = one.strip()
        fits = [gpu for gpu in view.gpus if _matches(gpu, wanted)]
        if not fits:
            which = f": there is no GPU {wanted}." if wanted.isdigit() else ""
            raise _UsageError(f"No devices were found{which}", 6)
        found += fits
    return found


def _matches(gpu: Gpu, wanted: str) -> bool:
    card = gpu.card
    if wanted.isdigit():
        return card.index == int(wanted)
    return wanted == card.uuid or card.bus_id.upper().endswith(wanted.upper().removeprefix("0000:"))


def _write(text: str, filename: str | None) -> None:
    if filename is None:
        sys.stdout.write(text)
        sys.stdout.flush()
    else:
        with open(filename, "w", encoding="utf-8") as file:  # noqa: PTH123 - as `-f` has it
            file.write(text)
