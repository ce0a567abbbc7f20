"""PyTorch's caching allocator, in pure Python. Start with `caching_allocator`, then `blocks`.

`caching_allocator` has the fast paths of malloc and free, `slow_path` everything unusual, `segments` what asks the
device for memory, `expandable_segments` the growing kind. `settings` reads PYTORCH_CUDA_ALLOC_CONF, `statistics` counts
for `torch.cuda.memory_stats`, `history` records for the memory visualizer, `out_of_memory` has the error's figures.

Imports nothing else of `hardware`.
"""
