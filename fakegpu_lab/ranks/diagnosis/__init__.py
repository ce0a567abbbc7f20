"""What is said when ranks hang or disagree. Start with `hang_messages`.

`hang_messages` says who waits where, what the others did instead, and the likely cause; `nccl_watchdog` has NCCL's own
words; `program_hints` what is wrong with a program that does run; `user_tracebacks` ends errors at the user's line.

May import `ranks.collectives`, `ranks.scheduling`.
"""
