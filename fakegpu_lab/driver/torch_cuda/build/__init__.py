"""What a CUDA build of torch has and a CPU build lacks. Start with `versions`.

`versions` has `torch.version.cuda` and its like, `flags` has torch.backends, `cudart` the runtime's functions,
`unsupported` what is refused, with the reason.
"""
