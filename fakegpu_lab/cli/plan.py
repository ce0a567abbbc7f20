"""``fakegpu-lab plan``: runs one rank of a large job by itself, to find the memory and time that it needs."""

from __future__ import annotations

import os

from fakegpu_lab.cli.run import Request
from fakegpu_lab.cli.run import run as run_program
from fakegpu_lab.hardware.catalogue.spec import parse_spec
from fakegpu_lab.processes import inheritance
from fakegpu_lab.ranks.planning.figures import checked


def run(request: Request, world_size: int, rank: int) -> None:
    """Run the program as `rank` of a job whose other ranks do not exist, and exit with its exit status.

    Raises
    ------
    FakeGpuError
        If anything is wrong with the request. The program has not started then.
    """
    spec = parse_spec(request.devices, memory=request.memory)
    world = checked(world_size, rank, min(spec.gpus_per_node, world_size))
    os.environ[inheritance.WORLD] = f"{world.size}:{world.rank}:{world.local_size}"
    run_program(request)
