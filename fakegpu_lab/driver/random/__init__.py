"""CUDA's random numbers, to the last digit. Start with `distributions`.

`generators` keeps seed and offset. `distributions` and `elementwise_rng` fill tensors as CUDA's kernels do (`randn`,
`uniform_`, `exponential_`, …), from the Philox words of `hardware.random`. `sampling` has `multinomial`, `randperm` and
other ops that take or make tensors, `dropout` its mask.

May import `driver.placement`, `driver.cost`, `driver.base`.
"""
