"""What the tests of PyTorch 2.6 import, and the installed PyTorch has under another name, or no longer has.

The tests come from a folder, but the library they are written with, `torch.testing._internal`, comes from the installed
PyTorch. Nothing here changes what a test checks.
"""

from __future__ import annotations

import functools
import importlib.machinery
import importlib.util
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

RENAMED = {
    # module: {the old name: the present one}
    "common_mkldnn": {"bf32_on_and_off": "reduced_f32_on_and_off"},
    "common_distributed": {"MultiProcContinousTest": "MultiProcContinuousTest"},
    "common_fsdp": {"test_compiled_fsdp": "compiled_fsdp_test"},
    "inductor_utils": {"HAS_CUDA": "HAS_CUDA_AND_TRITON"},
    "triton_utils": {"HAS_CUDA": "HAS_CUDA_AND_TRITON", "requires_cuda": "requires_cuda_and_triton"},
}
GONE = {
    # module: {the old name: what stands for it}
    "torch.testing._internal.common_utils": {"disable_translation_validation_if_dynamic_shapes": lambda test: test},
    "torch._dynamo.backends.onnxrt": {"has_onnxruntime": lambda: False},
    "torch._dynamo.exc": {"IncorrectUsage": RuntimeError},
    "torch._dynamo.testing": {"requiresPy310": lambda test: test},
    "torch._inductor.compile_fx": {"complex_memory_overlap": lambda tensor: False},
}


def apply() -> None:
    """Give the older names to the installed PyTorch."""
    for module_name, names in RENAMED.items():
        try:
            module = importlib.import_module(f"torch.testing._internal.{module_name}")
        except Exception:  # a file that needs it will say so itself
            continue
        for old, new in names.items():
            if not hasattr(module, old) and hasattr(module, new):
                setattr(module, old, getattr(module, new))

    for module_name, stand_ins in GONE.items():
        module = importlib.import_module(module_name)
        for old, stand_in in stand_ins.items():
            if not hasattr(module, old):
                setattr(module, old, stand_in)

    from torch.testing._internal import common_cuda, common_device_type, common_methods_invocations, common_nn

    if not hasattr(common_methods_invocations, "skipOps"):  # they moved, and the decorator knows its test by itself
        common_methods_invocations.skip = common_device_type.skip
        common_methods_invocations.xfail = common_device_type.xfail
        common_methods_invocations.skipOps = lambda case, test, to_skip: common_device_type.skipOps(to_skip)

    if not hasattr(common_cuda, "tf32_is_not_fp32"):
        common_cuda.tf32_is_not_fp32 = tf32_is_not_fp32
    if not hasattr(common_methods_invocations, "binary_ufuncs_and_refs"):
        ops: Any = common_methods_invocations
        ops.binary_ufuncs_and_refs = tuple(op for op in ops.ops_and_refs if isinstance(op, ops.BinaryUfuncInfo))
    if not {"new_module_tests", "__getattr__"} & vars(common_nn).keys():  # in 2.6 a list; now a function makes it
        # Made when a test file asks for it: the list looks at the machine.
        common_nn.__getattr__ = functools.partial(_made_on_demand, common_nn)


class Loader(importlib.machinery.SourceFileLoader):
    """Reads a test file.

    In 2.6 the class for a device had its own copy of `setUp`. Now it inherits `setUp`, and `super(self.__class__,
    self)` in test_linalg.py would call itself forever.
    """

    def get_data(self, path: str) -> bytes:
        """The file's source, with a `super()` that means what was meant."""
        return super().get_data(path).replace(b"super(self.__class__, self)", b"super()")

    def get_code(self, fullname: str) -> Any:
        """The source, compiled now: what Python keeps in `__pycache__` is the file as it is."""
        return self.source_to_code(self.get_data(self.path), self.path)


def imported(path: Path) -> Any:
    """The module of a test file."""
    loader = Loader(path.stem, str(path))
    spec = importlib.util.spec_from_file_location(path.stem, path, loader=loader)
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    loader.exec_module(module)
    return module


def tf32_is_not_fp32() -> bool:
    """Whether products in float32 may lose digits on this card."""
    import torch

    return torch.cuda.is_available() and torch.cuda.get_device_properties(0).major >= 8


def _made_on_demand(module: Any, name: str) -> Any:
    if name == "new_module_tests":
        return module.get_new_module_tests()
    raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")
