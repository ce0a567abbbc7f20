"""Makes the processes that a test starts start quickly.

PyTorch's distributed tests spawn a process for each rank of each test, and each of them imports torch again, for
seconds. Here they come from multiprocessing's fork server, which has imported the libraries once, with the machine
enabled and CUDA not yet initialized; everything else is as in a spawned process.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
from typing import Any

from tests.upstream import older_trees


def from_a_fork_server() -> None:
    """Let ``get_context("spawn")`` be a fork server from now on."""
    import torch.multiprocessing

    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    server = multiprocessing.get_context("forkserver")
    server.set_forkserver_preload([__name__])
    contexts = multiprocessing.get_context

    def get_context(method: str | None = None) -> Any:
        return server if method == "spawn" else contexts(method)

    multiprocessing.get_context = torch.multiprocessing.get_context = get_context


def preload() -> None:
    """Import what the tests' processes need; in the fork server."""
    older_trees.apply()
    import torch.distributed.fsdp
    import torch.distributed.tensor
    import torch.testing._internal.common_fsdp
    import torch.testing._internal.distributed._tensor.common_dtensor
    import torch.testing._internal.distributed.multi_threaded_pg  # noqa: F401

    from fakegpu_lab.driver.torch_cuda.devices import lifecycle

    # Importing them has counted the GPUs. On a card that would spoil CUDA for forked processes; here it has left nothing.
    assert not torch.cuda.is_initialized()
    lifecycle._poisoned = False


if "multiprocessing.forkserver" in sys.modules and sys.argv[:1] == ["-c"]:
    preload()
