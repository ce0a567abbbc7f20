"""Copies between host and devices, and between devices. Start with `transfer`.

`transfer` moves the values and counts bytes and time (how long a copy takes is in `hardware.transfers.copies`).
`pinned_memory` knows which host tensors are pinned; `repeated_copies` recognises a tensor that is sent twice.

May import `driver.asserts`, `driver.cost`, `driver.base`.
"""
