"""Whether torch's classes were written to while a statement of a check ran, also if it was undone before the end.

An answer that sets ``torch.Tensor.T`` for one read of the check and deletes it leaves no value behind. CPython counts:
a class has a version, which its method cache goes by, and which any change of the class, or of one that it inherits
from, makes invalid (Objects/typeobject.c, ``PyType_Modified``). There is no way to it from Python but `ctypes`.
"""

from __future__ import annotations

import ctypes
import random
import sys

_PLACE = 48 * ctypes.sizeof(ctypes.c_void_p)
"""Where ``tp_version_tag`` lies in a class (Include/cpython/object.h, ``PyTypeObject``), in bytes."""
_OF_COMPILER = "torch._dynamo"
"""A package that patches ``torch.nn.Module`` while it compiles, and whenever compiled code is called."""


class ClassVersions:
    """The versions of tensors' classes, of those of ``torch.nn``, and of what checks measure with.

    None where they are unreadable. Recording changes the class of the tensors on simulated GPUs, so that other changes
    of this class in the same statement go unnoticed.
    """

    def __init__(self) -> None:
        import torch

        from fakegpu_lab.driver.base.tensor import FakeCudaTensor
        from fakegpu_lab.hardware.buffer import Buffer

        modules = {one for one in vars(torch.nn).values() if isinstance(one, type)} - {torch.nn.Parameter}
        found = [Buffer, torch.Tensor, FakeCudaTensor, torch.nn.Parameter]
        found += sorted(modules, key=lambda one: one.__name__)
        found += [torch.cuda.Event, torch.cuda.Stream, torch.amp.GradScaler, torch.utils.data.DataLoader]
        found += [random.Random, random.SystemRandom]
        self._changed_by_recording = [Buffer, FakeCudaTensor]
        self._classes = [(one, _version(one)) for one in found] if _is_readable() else []
        self._kept = self._now()

    def _now(self) -> list[int]:
        for one, _ in self._classes:
            getattr(one, "no attribute", None)  # a class whose version is invalid gets another one
        return [version.value for _, version in self._classes]

    def keep(self) -> None:
        """Remember the versions now."""
        self._kept = self._now()

    def changed(self) -> list[str]:
        """The classes that were written to since then: not all that inherit from one of them."""
        import torch

        versions = zip(self._classes, self._now(), self._kept, strict=True)
        found = [one for (one, _), now, kept in versions if now != kept]
        if _OF_COMPILER in sys.modules and torch.nn.Module in found:  # with it, all that inherit from it
            found = [one for one in found if not issubclass(one, torch.nn.Module)]
        if self._changed_by_recording[0] in found:
            found = [one for one in found if one not in self._changed_by_recording]
        return [one.__name__ for one in found if not any(base in found for base in one.__mro__[1:])]


def _version(one: type) -> ctypes.c_uint32:
    return ctypes.c_uint32.from_address(id(one) + _PLACE)


def _is_readable() -> bool:
    """Whether the version lies where it is looked for: it changes when a class does, and only then."""

    class Tried:
        first = 1

    version = _version(Tried)
    seen = []
    for change in (False, True, False):
        if change:
            Tried.first = 2
        getattr(Tried, "no attribute", None)
        seen.append(version.value)
    return 0 not in seen and seen[0] != seen[1] == seen[2]
