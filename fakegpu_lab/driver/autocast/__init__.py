"""Mixed precision: what ``torch.autocast("cuda")`` does. Start with `regions`, then `casts`.

`regions` follows where a region begins and ends, `casts` registers the kernels that cast, `op_lists` has CUDA's lists;
`recurrent` and `scripted_regions` are the two special cases.

May import `driver.cost`, `driver.base`.
"""
