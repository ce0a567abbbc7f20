"""Simulated time: when each kernel, copy and wait begins and ends. Start with `clock`.

`clock` has host threads, streams and events; `happens_before` orders their work, and so finds races;
`concurrent_kernels` lets several streams share a card; `roofline` computes a kernel's nanoseconds. `recorder` keeps
`records` during a recording; `ledger` counts, and `utilization` samples, at all times.

May import `hardware.catalogue`.
"""
