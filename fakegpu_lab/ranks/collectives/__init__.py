"""One operation between ranks, from the call to its result. Start with `channel`.

Calls (`operation`) meet in a `channel`; `mismatches` says when ranks call different things, `start_conditions` what
keeps an operation from starting, `values` moves the data, `cost` moves the clocks.

May import `ranks.scheduling`.
"""
