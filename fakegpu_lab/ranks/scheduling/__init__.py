"""Ranks as threads, of which one runs at a time. Start with `scheduler`.

When the turn passes, everything is swapped that a process would own: `process_state` (environment, random states,
CUDA's state, for NumPy `numpy_state`), `world` (torch.distributed's state), `output` (labels on printed lines). `store`
is the key-value store by which ranks find each other, `environment` has torchrun's variables, `malloc_trim` returns
memory to the system.

May import `driver`, and `dist` of `ranks`.
"""
