"""One operation between ranks, from the call to its result. Start with `channel`.

Calls (`operation`, of `kinds`) meet in a `channel`; `mismatches` reports ranks that call different things,
`start_conditions` knows what keeps an operation from starting, `values` moves the data, `cost` moves the clocks.

May import `ranks.scheduling`.
"""
