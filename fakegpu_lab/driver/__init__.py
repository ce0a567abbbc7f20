"""Makes torch see the simulated machine as CUDA. Start with `install`, then `dispatch.dispatcher`.

Rooms, from top to bottom: `install` · `torch_cuda` (the functions of torch.cuda) · `profiler`, `graphs`,
`memory_report`, `compile` · `tensor_api` (what Python asks of a tensor) · `recorder` · `dispatch` (one op's path) ·
`meta` (``compute="meta"``) · `ops` · `copies` · `random` · `autocast` · `autograd` · `asserts` · `placement` · `cost` ·
`base`. Imports only go down; import-linter checks it.

May import `hardware`, `nvml`, `user_code`.
"""
