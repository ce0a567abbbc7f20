"""Ranks that are real processes, as torchrun starts them. Start with `process_ranks`.

Gloo carries the values (`gloo_wire`). Before each operation the processes announce what they are about to do, so that a
mismatch is reported at once (`messages`).

May import `ranks.process_groups` and everything below it.
"""
