"""`KernelCall` stands for an overload where the user's own kernel is launched: on CUDA that is no op of torch's.

The launch takes the path of an op: recordings note it, CUDA graphs capture it and run it again, races between streams
are found. Profilers show its plain name (an op's has a namespace).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from fakegpu_lab.driver.base.tensor import FakeCudaTensor

if TYPE_CHECKING:
    from collections.abc import Callable

_SCHEMA: Any = torch._C.parse_schema("kernels::kernel(Tensor(a!)[] written, Tensor[] read, int number) -> ()")


class _Schema:
    """The schema of all kernels, with the name of one."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.overload_name = ""
        self.arguments = _SCHEMA.arguments
        self.returns = _SCHEMA.returns


class KernelCall:
    """What the dispatch path sees of a launch.

    Its arguments are two lists of tensors. The kernel is taken to write all of its tensors, until `plan` has run and
    has moved those that it only read to the second list.

    Attributes
    ----------
    plan
        Runs the kernel: it is called with the arguments.
    """

    tags = ()
    _op = None
    _overloadname = "default"
    namespace = "kernels"

    def __init__(self, name: str, plan: Callable[[tuple[Any, ...], dict[str, Any]], None]) -> None:
        self._schema = _Schema(name)
        self.plan = plan

    def __call__(self, tensors: list[FakeCudaTensor]) -> None:
        """Launch it on some device tensors."""
        __tracebackhide__ = True
        FakeCudaTensor.__torch_dispatch__(self, (), ([*tensors], [], 0), {})

    def __repr__(self) -> str:
        return f"<kernel {self._schema.name}>"
