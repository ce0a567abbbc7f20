"""Ranks as threads, of which one runs at a time. Start with `scheduler`.

Whenever the turn passes, what a process would own is swapped: `process_state` (environment, random states, CUDA's
state), `world` (torch.distributed's own), `output` (labels on printed lines). `store` is the key-value store by which
ranks find each other, `environment` has torchrun's variables, `malloc_trim` gives the C library's memory back.

May import `driver`, and `dist` and `source_lines` of `ranks`.
"""
