"""What a kernel that the user wrote did to the card, on one card: figures, lines, drawings. Start with `card`.

`pictures` draws: the lanes of a request and the sectors they touch, the banks of shared memory, the roofline with the
kernel on it, the blocks over the multiprocessors.

May import `hardware`, `formatting` and `user_code`.
"""
