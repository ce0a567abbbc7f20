"""Simulated time: when each kernel, copy and wait begins and ends. Start with `clock`.

`clock` has host threads, streams and events; `happens_before` knows which work must be over before which, and so finds
races; `concurrent_kernels` shares one card among streams; `roofline` gives a kernel's nanoseconds; `recorder` keeps
`records` while somebody records; `ledger` counts always.

May import `hardware.catalogue`.
"""
