"""Which of PyTorch's test files are run, on which machine, and which of their tests concern CUDA."""

from __future__ import annotations

import functools
import hashlib
import inspect
import re
import zlib
from collections import defaultdict
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import unittest


@dataclass(frozen=True)
class Group:
    """Test files that are run in the same way."""

    patterns: tuple[str, ...]
    """Globs below PyTorch's `test/`."""
    machine: str = "a100:2"
    every_test: bool = False
    """Whether a test counts even if it never mentions CUDA."""
    processes: bool = False
    """Whether the tests start processes, one for each rank."""
    timeout: float = 60
    """Seconds of the processor for one test."""
    only: str = "*"
    """A glob of ``Class::test``; the file's other tests are not counted."""


GROUPS = (
    Group(("test_cuda.py", "test_cuda_multigpu.py"), every_test=True),
    Group(
        (
            "test_torch.py",
            "test_nn.py",
            "test_autograd.py",
            "test_optim.py",
            "test_indexing.py",
            "test_view_ops.py",
            "test_tensor_creation_ops.py",
            "test_type_promotion.py",
            "test_linalg.py",
            "test_sparse.py",
            "test_foreach.py",
            "test_reductions.py",
            "test_transformers.py",
            "test_dataloader.py",
            "nn/test_*.py",
            "profiler/test_*.py",
        )
    ),
    Group(  # only in samples (`--draw`)
        (
            "test_autocast.py",
            "test_binary_ufuncs.py",
            "test_complex.py",
            "test_custom_ops.py",
            "test_dlpack.py",
            "test_expanded_weights.py",
            "test_fake_tensor.py",
            "test_flop_counter.py",
            "test_legacy_vmap.py",
            "test_masked.py",
            "test_maskedtensor.py",
            "test_matmul_cuda.py",
            "test_meta.py",
            "test_modules.py",
            "test_multiprocessing.py",
            "test_namedtensor.py",
            "test_nestedtensor.py",
            "test_numba_integration.py",
            "test_numpy_interop.py",
            "test_ops.py",
            "test_ops_*gradients.py",
            "test_overrides.py",
            "test_proxy_tensor.py",
            "test_python_dispatch.py",
            "test_scatter_gather_ops.py",
            "test_segment_reductions.py",
            "test_serialization.py",
            "test_shape_ops.py",
            "test_sort_and_select.py",
            "test_sparse_csr.py",
            "test_spectral_ops.py",
            "test_stateless.py",
            "test_testing.py",
            "test_unary_ufuncs.py",
            "test_utils.py",
            "autograd/test_functional.py",
            "distributions/test_distributions.py",
            "functorch/test_eager_transforms.py",
            "functorch/test_ops.py",
            "functorch/test_vmap.py",
            "optim/test_*.py",
        )
    ),
    Group(("dynamo/test_*.py",), every_test=True),
    Group(("inductor/test_torchinductor.py",), every_test=True, timeout=120, only="GPUTests::*"),
    Group(
        (
            "distributed/test_c10d_*.py",
            "distributed/tensor/**/test_*.py",
            "distributed/_tensor/**/test_*.py",  # its name in PyTorch 2.6
            "distributed/_composable/fsdp/test_*.py",
        ),
        machine="a100:4",
        every_test=True,
        processes=True,
        timeout=120,
    ),
)

PACKAGE = Path(__file__).parents[2] / "fakegpu_lab"
CUDA = re.compile(r"cuda|gpu|nccl", re.IGNORECASE)


@functools.cache
def code() -> str:
    """Which state of the package this is: a hash of its source files."""
    known = hashlib.sha1(usedforsecurity=False)
    for path in sorted(PACKAGE.rglob("*.py")):
        known.update(path.read_bytes())
    return known.hexdigest()[:10]


def found(tree: Path, only: tuple[str, ...] = ()) -> dict[str, Group]:
    """The files of a tree, in the order of `GROUPS`; with `only`, those that match one of its globs."""
    files: dict[str, Group] = {}
    for group in GROUPS:
        for pattern in group.patterns:
            for path in sorted(tree.glob(pattern)):
                name = path.relative_to(tree).as_posix()
                if not only or any(fnmatch(name, glob) for glob in only):
                    files.setdefault(name, group)
    return files


def drawn(names: list[str], count: int, seed: int) -> list[str]:
    """Some of the files, for a seed always the same; a longer draw begins with the shorter one."""
    return sorted(names, key=lambda name: zlib.crc32(f"{seed}{name}".encode()))[:count]


def concerns_cuda(test_class: type, name: str) -> bool:
    """Whether a test uses CUDA: as its class's device, in its name, or in its source."""
    if getattr(test_class, "device_type", None) == "cuda" or CUDA.search(name):
        return True
    return bool(CUDA.search(source(getattr(test_class, name))))


def sample(tests: dict[str, unittest.TestCase], size: int, seed: int = 0) -> list[str]:
    """Some of the tests, for a seed always the same: one of each function first, then a second of each, and so on."""
    functions: dict[tuple[str, str], list[str]] = defaultdict(list)
    for name, test in tests.items():
        cls, method = name.split("::")
        functions[cls, getattr(function(getattr(test, method)), "__qualname__", method)].append(name)
    place = {name: zlib.crc32(f"{seed or ''}{name}".encode()) for name in tests}
    order = []
    for members in functions.values():
        members.sort(key=place.__getitem__)
        order += [(depth, place[name], name) for depth, name in enumerate(members)]
    return [name for _, _, name in sorted(order)[:size]]


def function(test: Any) -> Any:
    """The function that somebody wrote, below decorators and parametrization."""
    return inspect.unwrap(getattr(test, "__func__", test))


def source(test: Any) -> str:
    """The source of a test's function."""
    try:
        return inspect.getsource(function(test))
    except (OSError, TypeError):
        return ""
