"""Whose code is it? The program's own, a training library's, or that of Python and its packages.

The answer goes by the file that the code is in: Python's own modules and installed packages are in their folders, and
everything else (scripts, the modules beside them, cells of a notebook) belongs to the program.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

from fakegpu_lab.user_code.tracebacks import is_ours

_STANDARD_LIBRARY = str(Path(os.__file__).parent) + os.sep
_PACKAGE_FOLDERS = ("site-packages", "dist-packages")
_GENERATED = ("<frozen ", "<timeit-src>", "<magic-timeit>", "<__array_function__")
"""How the names of code begin that has no file, and that the program did not write."""

TRAINING_LIBRARIES = frozenset({
    "accelerate", "catalyst", "composer", "d2l", "deepspeed", "detectron2", "diffusers", "fairseq", "fastai", "flair",
    "ignite", "lightning", "lightning_fabric", "megatron", "mmengine", "monai", "nemo", "peft", "pytorch_lightning",
    "sentence_transformers", "skorch", "timm", "torch_geometric", "torchmetrics", "torchtitan", "torchtune",
    "torchvision", "transformers", "trl", "ultralytics",
})  # fmt: skip
"""Installed packages that run training loops, and measure them."""


@cache
def is_programs_own(file_name: str) -> bool:
    """Whether code of this file (``co_filename``) belongs to the user's program."""
    if is_ours(file_name) or file_name.startswith(_GENERATED) or _package(file_name) is not None:
        return False
    return not file_name.startswith(_STANDARD_LIBRARY)


@cache
def trains(file_name: str) -> bool:
    """Whether code of this file belongs to the user's program or to a training library."""
    return is_programs_own(file_name) or _package(file_name) in TRAINING_LIBRARIES


def _package(file_name: str) -> str | None:
    """The installed package that a file belongs to."""
    parts = Path(file_name).parts
    places = [place for place, part in enumerate(parts[:-1]) if part in _PACKAGE_FOLDERS]
    return parts[places[-1] + 1].removesuffix(".py") if places else None
