"""A real card, as torch and NVML show it. Start with `cards`.

Nothing here looks at the simulation: it uses only public calls of `torch.cuda`, `torch.profiler` and `pynvml`, so that
it works on any machine with CUDA. The simulation answers the same calls, which is how it is tested. `cards` makes the
snapshots that live views show, `watch` the curves of memory, with what it is for from `memory`; `nvml` reads NVML.

May import `hardware`, `formatting`, and of `driver` what finds live objects and draws curves.
"""
