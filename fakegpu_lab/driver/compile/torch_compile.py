"""torch.compile and torch.export, which are torch's own: what the driver changes for them.

Dynamo captures what a program compiles (`dynamo`), and Inductor and Triton make kernels of it (`inductor`). Without
Triton, the captured graphs run op by op.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from fakegpu_lab.driver.compile import dynamo, inductor
from fakegpu_lab.driver.recorder import recording

if TYPE_CHECKING:
    from fakegpu_lab.driver.base.patches import Patches


def install(patches: Patches) -> None:
    """Prepare Dynamo and Inductor; compiled modules do not warn of the recorders' hooks."""
    patches.set(torch.nn.modules.module, "_has_any_global_hook", recording.hooks_of_others)
    dynamo.install(patches)
    inductor.install(patches)
