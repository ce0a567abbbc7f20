"""Messages about programs that hang, fail, or do needless work. Start with `hang_messages`.

`hang_messages` reports which rank waits where, what the others did instead, and the likely cause (`hang_causes`);
`nccl_watchdog` has NCCL's own message, `program_hints` finds mistakes in programs that do run, `user_tracebacks` ends
errors at the user's line.

May import `ranks.collectives`, `ranks.scheduling`.
"""
