"""``fakegpu-lab plan``: what one rank of a large job needs, read off a run of that rank alone."""

from __future__ import annotations

import os

from fakegpu_lab.cli.run import Request
from fakegpu_lab.cli.run import run as run_program
from fakegpu_lab.hardware.catalogue.spec import parse_spec
from fakegpu_lab.processes import inheritance
from fakegpu_lab.ranks.planning.figures import checked


def run(request: Request, world_size: int, rank: int) -> None:
    """Run the program as that rank of a world that is implied, and end this process as it ended.

    Raises
    ------
    FakeGpuError
        For anything wrong with the request, before the program starts.
    """
    spec = parse_spec(request.devices, memory=request.memory)
    world = checked(world_size, rank, min(spec.gpus_per_node, world_size))
    os.environ[inheritance.WORLD] = f"{world.size}:{world.rank}:{world.local_size}"
    run_program(request)
