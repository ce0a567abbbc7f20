"""PyTorch's caching allocator, in pure Python. Start with `caching_allocator`, then `blocks`.

`caching_allocator` has the allocator, one class: malloc and free first. `settings` reads PYTORCH_CUDA_ALLOC_CONF,
`statistics` counts for memory_stats, `history` records for the memory visualizer, `record_stream` has the blocks that
wait for other streams, `device_memory` the card below, and the error when it is full.

Imports nothing else of `hardware`.
"""
