"""torch's own databases of operators, modules and optimizers, on the device and on the CPU.

torch notes the input that a test of its own works on, and to find that test it looks through the whole stack and the
source of each frame: 0.15 s for each entry, most of what an entry took. Here there is none, and it is not looked for.
"""

from __future__ import annotations

from torch.testing._internal import common_utils
from torch.testing._internal.opinfo import core

for _module in (common_utils, core):
    _module.extract_test_fn = lambda: None
