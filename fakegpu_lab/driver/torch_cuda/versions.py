"""The CUDA build that the simulated torch claims to be: versions of CUDA, cuDNN and NCCL, architectures.

It is the wheel that a user of that machine would install: the default one, or for cards before Turing the one for
CUDA 12.6, the last that supports them (`torch.cuda.PYTORCH_RELEASES_CODE_CC`). So torch does not warn at
initialisation, and cuDNN does not refuse the card.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fakegpu_lab.driver.base import current
from fakegpu_lab.driver.base.changes import begun, in_cuda_builds, replaced, wrapped
from fakegpu_lab.driver.torch_cuda.devices import poison_fork

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True)
class Build:
    """A CUDA wheel of PyTorch."""

    cuda: str
    cuda_number: int
    cudnn: int
    nccl: tuple[int, int, int]
    capabilities: tuple[int, ...]


_OLD = Build("12.6", 12060, 91002, (2, 27, 5), (50, 60, 70, 75, 80, 86, 90))
_NEW = Build("13.0", 13000, 91501, (2, 28, 9), (75, 80, 86, 90, 100, 120))


def build() -> Build:
    """The wheel for the enabled machine."""
    oldest = min((device.profile.compute_capability for device in current.cards()), default=(9, 0))
    return _OLD if oldest < (7, 5) else _NEW


def get_arch_flags() -> str:
    """``sm_75 sm_80 …``, with the cards' own architectures, so that torch does not warn that it has no code for one."""
    poison_fork()
    capabilities = set(build().capabilities)
    for device in current.cards():
        major, minor = device.profile.compute_capability
        wanted = 10 * major + minor
        if wanted in (53, 62, 72, 87, 101, 110) or not any(c // 10 == major and c <= wanted for c in capabilities):
            capabilities.add(wanted)
    return " ".join(f"sm_{capability}" for capability in sorted(capabilities))


def nccl_version() -> int:
    """``_nccl_version``: major, minor and patch in one number, which `torch.cuda.nccl.version` decodes."""
    major, minor, patch = build().nccl
    return major << 32 | minor << 16 | patch


FUNCTIONS = {
    "_cuda_getArchFlags": get_arch_flags,
    "_cuda_getCompiledVersion": lambda: build().cuda_number,
    "_nccl_version": nccl_version,
    "_nccl_version_suffix": lambda: b"",
}


def _quiet() -> Callable[[], None]:
    logger = logging.getLogger("torch.utils.flop_counter")
    before, logger.disabled = logger.disabled, True
    return lambda: setattr(logger, "disabled", before)


_WHY = "what torch was built with"
CHANGES = [
    *in_cuda_builds(FUNCTIONS),
    replaced("torch._C._has_cuda", True, _WHY),
    replaced("torch._C._has_cudnn", True, _WHY),
    wrapped("torch.version.cuda", lambda old: build().cuda, _WHY),
    # In sys.modules, the module is an object with properties; its functions are in the module that it wraps.
    replaced("torch.backends.cudnn.m.version", lambda: build().cudnn, _WHY),
    replaced("torch.backends.cudnn.m._init", lambda: True, "is_acceptable() would warn otherwise"),
    replaced("torch.cuda.has_magma", True, _WHY),
    begun(
        _quiet, "a CUDA wheel has Triton; this one module reports on stderr, when it is imported, that it is missing"
    ),
]
