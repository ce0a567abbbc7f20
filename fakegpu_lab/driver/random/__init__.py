"""CUDA's random numbers, to the last digit. Start with `distributions`.

`generators` keeps seed and offset; `distributions` and `elementwise_rng` fill tensors as CUDA's kernels do (`randn`,
`uniform_`, `exponential_`, …); `sampling` has the ops that take tensors (`multinomial`, `randperm`), `dropout` its
mask; `generator_checks` refuses a generator of the wrong device.

May import `driver.placement`, `driver.cost`, `driver.base`.
"""
