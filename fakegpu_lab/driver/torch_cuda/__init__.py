"""torch.cuda on the simulated machine: the C++ functions that torch's own Python code calls. Start with `devices`.

torch/cuda/*.py runs unmodified. Each module here has one subject: its ``FUNCTIONS``, under torch's own names, are set
on ``torch._C``, and the other rows of its ``CHANGES`` are what Python bound elsewhere when a CPU build was imported.
`devices` has the devices, `streams` streams and events, `memory` the allocator's functions, `versions` and `flags` the
versions and switches of a CUDA build. May import every other room of the driver.
"""
