"""torch.compile and torch.export, which are torch's own: what the driver changes for them.

Dynamo captures what a program compiles (`dynamo`), and Inductor and Triton make kernels of it (`inductor`). Without
Triton, the captured graphs run op by op.
"""

from __future__ import annotations

from fakegpu_lab.driver.base.changes import begun, patches, replaced
from fakegpu_lab.driver.compile import compilations, dynamo, inductor
from fakegpu_lab.driver.recorder import recording


def _begin() -> None:
    dynamo.install(patches)
    inductor.install(patches)
    compilations.install(patches)


CHANGES = [
    replaced(
        "torch.nn.modules.module._has_any_global_hook",
        recording.hooks_of_others,
        "compiled modules do not warn of the recorders' hooks",
    ),
    begun(_begin, "Dynamo and Inductor know device tensors and the card"),
]
