"""`KernelCall` stands for an overload where the user's own kernel is launched: on CUDA that is no op of torch's.

The launch takes the path of an op: recordings note it, CUDA graphs capture it and run it again, races between streams
are found. Profilers show its plain name (an op's has a namespace).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from fakegpu_lab.driver.base.tensor import FakeCudaTensor

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Run = Callable[[list[FakeCudaTensor], list[FakeCudaTensor]], None]

_SCHEMA: Any = torch._C.parse_schema("kernels::kernel(Tensor(a!)[] written, Tensor[] read, int run) -> ()")


class _Schema:
    """The schema of all kernels, with the name of one."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.overload_name = ""
        self.arguments = _SCHEMA.arguments
        self.returns = _SCHEMA.returns


class KernelCall:
    """What the dispatch path sees of all launches of kernels of one name; `call_of` finds it.

    Its arguments are two lists of tensors, and the function that runs this launch. The kernel is taken to write all of
    its tensors, until that function has run and has moved those that were only read to the second list.
    """

    tags = ()
    _op = None
    _overloadname = "default"
    namespace = "kernels"

    def __init__(self, name: str) -> None:
        self._schema = _Schema(name)

    def __call__(self, tensors: Sequence[FakeCudaTensor], run: Run) -> None:
        """Launch a kernel on some device tensors; `run` gets the two lists."""
        __tracebackhide__ = True
        FakeCudaTensor.__torch_dispatch__(self, (), ([*tensors], [], run), {})

    @staticmethod
    def plan(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """The plan of `dispatcher`."""
        written, read, run = args
        run(written, read)

    def __repr__(self) -> str:
        return f"<kernel {self._schema.name}>"


_calls: dict[str, KernelCall] = {}


def call_of(name: str) -> KernelCall:
    """The `KernelCall` of a name: always the same one, because much of what is known of an op is kept by its id."""
    found = _calls.get(name)
    if found is None:
        found = _calls[name] = KernelCall(name)
    return found
