"""How GPUs reach each other, and how long that takes. Start with `fabric`.

`links` has PCI Express and NVLink, `nccl` NCCL's own choice of algorithm and protocol with their latencies and
bandwidths, `fabric` puts a machine together from both.

May import `hardware.catalogue`.
"""
