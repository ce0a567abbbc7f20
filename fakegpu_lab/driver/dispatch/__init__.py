"""The path of one op, from torch's dispatcher to the CPU's kernel and back. Start with `dispatcher`.

`dispatcher` makes a plan for each overload. The most frequent kinds are written out there and in `flat_plans`;
`general` handles every schema. `result_fixes` chooses the function that computes the values. `registered_kernels` is
how `torch.empty(3, device="cuda")` gets here.

May import `driver.ops` and everything below it.
"""
