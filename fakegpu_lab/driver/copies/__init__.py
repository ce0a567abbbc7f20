"""Copies between host and devices, and between devices. Start with `transfer`.

`transfer` moves the values and charges for it (how long is in `hardware.transfers.copies`); `pinned_memory` knows which
host tensors are page-locked; `sent_before` notices a tensor that is sent twice.

May import `driver.asserts`, `driver.cost`, `driver.base`.
"""
