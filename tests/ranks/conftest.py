"""A machine with a GPU for each rank."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest
import torch
import torch.distributed as dist

import fakegpu_lab as lab

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture
def gpus() -> Iterator[None]:
    lab.enable("a100:8")
    yield
    lab.disable()


def on_ranks(
    world_size: int, fn: Callable[..., Any], *args: Any, backend: str | None = "nccl", **more: Any
) -> list[Any]:
    """Run `fn` on ranks that have their device and their default group."""

    def program() -> Any:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        dist.init_process_group(backend, **more)
        try:
            return fn(*args)
        finally:
            if dist.is_initialized():
                dist.destroy_process_group()

    return lab.run_ranks(program, world_size)
