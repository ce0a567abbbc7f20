"""Backward and optimizers on device tensors. Start with `backward`.

May import `driver.base`.
"""
