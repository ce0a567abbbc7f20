"""nvidia-smi for the simulated GPUs: the same options, the same layout to the column (that of driver 580).

What it asks is `fakegpu_lab.nvml`; what the simulation knows nothing of is told as a card does that lacks it: N/A.
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
    """Run nvidia-smi; return its exit status: 2 for a field or an option that is none, 6 where a card is not found."""
    try:
        asked = parse(arguments)
        if asked.loop is None:
            return _once(asked.show, asked.out)
        while True:
            status = _once(asked.show, asked.out)
            if status:
                return status
            time.sleep(asked.loop)
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


def _once(show: Callable[[], str], out: str | None) -> int:
    text = show()
    if out is not None:
        with open(out, "w", encoding="utf-8") as file:  # noqa: PTH123 - as `-f` has it
            file.write(text)
    else:
        sys.stdout.write(text)
        sys.stdout.flush()
    return 0
