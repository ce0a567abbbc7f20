"""PyTorch's caching allocator, in pure Python. Start with `caching_allocator`, then `blocks`.

`caching_allocator` has the fast paths of malloc and free, `slow_path` everything unusual, `recycling` a shortcut.
`segments` takes memory from the device and gives it back, `expandable_segments` for the kind that grows; both work on
the data in `state`. `controls` is the side of torch.cuda.memory: `settings` reads PYTORCH_CUDA_ALLOC_CONF, `statistics`
counts for memory_stats, `history` records for the memory visualizer, `out_of_memory` has the error's figures.

Imports nothing else of `hardware`.
"""
