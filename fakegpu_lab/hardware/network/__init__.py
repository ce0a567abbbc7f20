"""How GPUs reach each other, and the time of a copy or a collective. Start with `fabric`.

`links` has PCI Express and NVLink, for copies; `nccl` has NCCL's choice of algorithm and protocol, with their latencies
and bandwidths; `fabric` gives it the figures of a machine, for collectives.

May import `hardware.catalogue`.
"""
