"""Philox 4×32-10, the random number generator of CUDA. Start with `curand`.

`curand` has the numbers that cuRAND gives to each thread of a kernel, `words` the 32-bit words underneath.
`driver.random` has torch's use of them.

Imports nothing of the package.
"""
