"""The path of one op, from torch's dispatcher to the CPU's kernel and back. Start with `dispatcher`.

`dispatcher` makes a plan for each overload. `plans` has the most frequent kinds; `general_path` handles every schema.
`values` chooses the function that computes the values. `registered_kernels` is how `torch.empty(3, device="cuda")` gets
here. What is known of each op beyond its schema stands in `driver.op_sheet`.

May import `driver.ops` and everything below it.
"""
