"""What a CUDA build of torch has and a CPU build lacks. Start with `versions`.

`versions` has `torch.version.cuda` and similar names, `flags` the switches of torch.backends, `cudart` the CUDA
runtime's functions.
"""
