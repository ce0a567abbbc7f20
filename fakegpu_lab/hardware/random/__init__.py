"""Philox 4×32-10, the random numbers of CUDA. Start with `philox`.

`philox` gives what cuRAND gives to each thread of a kernel, `philox_words` the 32-bit words underneath. What torch
makes of them is in `driver.random`.

Imports nothing of the package.
"""
