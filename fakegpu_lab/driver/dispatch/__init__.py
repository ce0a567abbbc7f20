"""The way of one op, from torch's dispatcher to the CPU's kernel and back. Start with `dispatcher`.

`dispatcher` makes a plan for each overload; the hot shapes are written out there and in `flat_plans`, `general` handles
every schema. `result_fixes` chooses what computes the values; `registered_kernels` is how `torch.empty(3,
device="cuda")` arrives here.

May import `driver.ops` and everything below it.
"""
