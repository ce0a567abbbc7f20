"""The environment variables that torchrun gives a rank."""

from __future__ import annotations


def variables(rank: int, world_size: int, local_size: int = 0) -> dict[str, str]:
    """The variables of a rank, with `local_size` ranks on each node; by default, all on one."""
    local_size = local_size or world_size
    return {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank % local_size),
        "WORLD_SIZE": str(world_size),
        "LOCAL_WORLD_SIZE": str(min(local_size, world_size)),
        "GROUP_RANK": str(rank // local_size),
        "GROUP_WORLD_SIZE": str(-(-world_size // local_size)),
        "ROLE_RANK": str(rank),
        "ROLE_WORLD_SIZE": str(world_size),
        "ROLE_NAME": "default",
        "MASTER_ADDR": "localhost",
        "MASTER_PORT": "29500",
    }
