"""Makes torch see the simulated machine as CUDA. Start with `install`, then `dispatch.dispatcher`.

Rooms, from top to bottom: `install` · `torch_cuda` (the functions of torch.cuda) · `profiler`, `memory_report`,
`compile` · `graphs` · `recorder` · `dispatch` (one op's path) · `tensor_api` (what Python reads of a tensor), `meta`
(``compute="meta"``) · `ops` · `copies` · `random` · `autocast` · `autograd` · `asserts` · `placement` · `cost` ·
`environment` · `base`. Imports only go down; import-linter checks it.

May import `hardware`, `nvml`, `user_code`.
"""
