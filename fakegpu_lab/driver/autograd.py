"""Backward in the calling thread.

The engine would start a thread for the device and asserts on its index there; PrivateUse1 with a Python guard has
none. Running in the caller's thread is also what makes the order of kernels the same in every run.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.autograd import graph

from fakegpu_lab.driver.privateuse1 import pending

_engine_run_backward = graph._engine_run_backward


def engine_run_backward(*args: Any, **kwargs: Any) -> Any:
    """`torch.autograd.graph._engine_run_backward` without worker threads."""
    with torch.autograd.set_multithreading_enabled(False):
        try:
            return _engine_run_backward(*args, **kwargs)
        except SystemError:
            # "returned NULL without setting an exception": the guard had to take it out of C++'s hands.
            error = pending.__dict__.pop("error", None)
            if error is None:
                raise
        raise error
