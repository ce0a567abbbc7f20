"""Reads torch's list of CUDA kernels: the ``native_functions.yaml`` that is in every wheel.

torchgen generates, before each CUDA kernel, a check that its tensors share a device (torchgen/dest/
register_dispatch_key.py, `gen_device_check`), unless the op's entry says ``device_check: NoCheck``. The error names the
generated function, whose name also depends on the entry. The file is read at the first mismatch.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fakegpu_lab.driver.cost.op import Op

_CUDA_KERNEL = re.compile(r"^    [\w, ]*\bCUDA\b[\w, ]*:", re.MULTILINE)


@cache
def _entries() -> dict[str, str]:
    import torchgen  # type: ignore[import-untyped]

    text = (Path(torchgen.__file__).parent / "packaged/ATen/native/native_functions.yaml").read_text("utf-8")
    blocks = text.split("\n- func: ")[1:]
    return {block.partition("(")[0]: block for block in blocks}


@cache
def checked_kernel(name: str, out: bool = False) -> str | None:
    """The generated function that checks the devices of the op `name`, without ``wrapper_CUDA_``; None if it has none.

    Parameters
    ----------
    name
        The name with its overload, as in the yaml: ``mm``, ``mm.out``, ``scatter_.value``.
    out
        Whether it is an ``out=`` overload.

    Examples
    --------
    >>> checked_kernel("mm"), checked_kernel("index_select"), checked_kernel("scatter_.value")
    ('mm', '_index_select', 'scatter__value')
    >>> checked_kernel("add.Tensor") is None
    True
    """
    entry = _entries().get(name)
    if entry is None or "\n  device_check: NoCheck" in entry:
        return None
    delegate = re.search(r"^  structured_delegate: (\S+)", entry, re.MULTILINE)
    kernels = _entries()[delegate.group(1)] if delegate else entry
    if not _CUDA_KERNEL.search(kernels):
        return None
    base, _, overload = name.partition(".")
    if out:
        base += "_out"
    if delegate or "\n  structured: True" in entry:
        return f"{base}_{overload}" if overload else base
    return f"{overload}_{base}"


def full_name(op: Op) -> str:
    """The name of an op's entry: ``scatter_.value``."""
    overload = op.schema.overload_name
    return f"{op.name}.{overload}" if overload else op.name
