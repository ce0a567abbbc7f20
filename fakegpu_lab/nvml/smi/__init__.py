"""nvidia-smi for the simulated GPUs: the same options and, to the column, the layout of driver 580.

Start with `options`. It parses the command line and chooses the page: `table` (the default), `details` (``-q``),
`fields` (``--query-gpu``) or `monitor` (``dmon``, ``pmon``). What is not simulated reads N/A, as on a card without it.

May import everything of `nvml` but `c_library` and `attach`.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

from fakegpu_lab.hardware.errors import FakeGpuError
from fakegpu_lab.nvml.smi.options import UsageError, parse

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["main"]


def main(arguments: list[str]) -> int:
    """Run nvidia-smi and return its exit status: 0; 1 for a mistake, 2 for an unknown field, 6 for an unknown index."""
    try:
        command = parse(arguments)
        if command.interval is None:
            return _once(command.show, command.filename)
        while True:
            status = _once(command.show, command.filename)
            if status:
                return status
            time.sleep(command.interval)
    except UsageError as error:
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


def _once(show: Callable[[], str], filename: str | None) -> int:
    text = show()
    if filename is not None:
        with open(filename, "w", encoding="utf-8") as file:  # noqa: PTH123 - as `-f` has it
            file.write(text)
    else:
        sys.stdout.write(text)
        sys.stdout.flush()
    return 0
