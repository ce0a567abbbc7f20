"""torch.distributed without types: its stubs cover only a part of it, perhaps of another version."""

from __future__ import annotations

from typing import Any

import torch.distributed
from torch.distributed import distributed_c10d

dist: Any = torch.distributed
c10d: Any = distributed_c10d
cpp: Any = torch._C._distributed_c10d
