"""Mixed precision: what ``torch.autocast("cuda")`` does. Start with `regions`, then `casts`.

`regions` follows where a region begins and ends, `casts` makes the kernels that cast, `op_lists` has CUDA's lists.
`recurrent` and `scripted_regions` are two special cases: whole recurrent layers, and regions in TorchScript.

May import `driver.cost`, `driver.base`.
"""
