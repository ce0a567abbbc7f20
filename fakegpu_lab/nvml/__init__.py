"""What NVIDIA's management library knows of the simulated GPUs: for nvidia-smi, pynvml and what is built on them.

Every process with a machine answers questions about it (`publish`); who asks is shown the machine of its own
notebook or run, with all its processes (`view`).
"""

DRIVER_VERSION = "580.95.05"
CUDA_VERSION = (13, 0)
"""The driver that is claimed: of the last branch that drives every card of the catalogue, Maxwell to Blackwell."""
