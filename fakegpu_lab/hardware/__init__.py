"""The simulated machine: devices with memory, streams and links between them. Start with `machine` and `device`.

Nothing here imports torch, and nothing imports a part of the package above it, so that everything can be tested by its
laws, in milliseconds. Rooms, from top to bottom: `transfers` (copies and collectives in simulated time), `allocator`
(the caching allocator), `network` (links, NCCL's times), `time` (clock, streams, roofline, records), `random` (Philox),
`catalogue` (profiles of GPUs and machines).
"""
