"""The simulated machine: devices with memory and streams, and the links between them. Start with `machine`, `device`.

Nothing here imports torch or a part of the package above, so the tests state laws and run in milliseconds. Rooms,
from top to bottom: `transfers` (copies and collectives in simulated time), `allocator` (the caching allocator),
`network` (links, NCCL's times), `time` (clock, streams, roofline, records), `philox` (random numbers), `catalogue`
(profiles of GPUs and machines).
"""
