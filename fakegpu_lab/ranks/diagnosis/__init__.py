"""Messages about programs that hang, fail, or do needless work. Start with `hang_messages`.

`hang_messages` reports which rank waits where, what the others did instead, and the likely cause (`hang_causes`);
`nccl_watchdog` has NCCL's own message, `program_hints` finds mistakes in programs that do run, `held_by_errors` frees
what a failed rank's frames hold.

May import `ranks.collectives`, `ranks.scheduling`.
"""
