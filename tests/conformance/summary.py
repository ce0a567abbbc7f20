"""How many pairs of entry and dtype of torch's operator database agree with the CPU.

``python -m tests.conformance.summary``
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

from torch.testing._internal.common_methods_invocations import op_db

from tests.conformance.exceptions import NOT_COMPARED
from tests.conformance.test_op_db import PAIRS, machine_on, name_of, on_cpu_only, pair_name, run

if TYPE_CHECKING:
    import torch
    from torch.testing._internal.opinfo.core import OpInfo


def agrees(op: OpInfo, dtype: torch.dtype) -> bool:
    """Whether a pair agrees; how it does not is printed."""
    try:
        run(op, dtype)
    except Exception as error:  # any failure is a disagreement
        print(f"  {name_of(op)} {pair_name(dtype)}: {str(error).strip().partition(chr(10))[0][:120]}")
        return False
    return True


def main() -> None:
    """Compare every pair, print those that disagree and the summary."""
    warnings.simplefilter("ignore")
    with machine_on():
        agree = sum(agrees(op, dtype) for op, dtype in PAIRS)
    refused = [name_of(op) for op in op_db if on_cpu_only(op)]
    print(f"operator database: {agree} of {len(PAIRS)} agree with the CPU ({agree / len(PAIRS):.1%})")
    print(f"  refused as on CUDA: {', '.join(refused)}; not compared: {', '.join(NOT_COMPARED)}")


if __name__ == "__main__":
    main()
