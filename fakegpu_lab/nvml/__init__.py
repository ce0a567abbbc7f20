"""NVIDIA's management library for the simulated GPUs: nvidia-smi, pynvml and the tools on top. Start with `view`.

Every process with a machine answers queries about it on a socket (`publish`). A program that queries (`discovery`) gets
the machine of its own notebook or run, with all its processes, as a `view`; `cards` and `sensors` are its parts. `smi`
is nvidia-smi, which shows a `table` or `fields`; `library` is libnvidia-ml, which pynvml gets; `program_path` lets
child processes find both.

May import `hardware`, `user_code`.
"""

DRIVER_VERSION = "580.95.05"
CUDA_VERSION = (13, 0)
"""The driver's version: of the last branch that supports every card of the catalogue, Maxwell to Blackwell."""
