"""``fakegpu-lab measure``: a card's profile from measurements, and the simulation beside it. Start with `figures`.

`figures` measures a card, with `stopwatch`; `fit` finds the profile with which the simulation takes the same times;
`page` lays the simulation of the nearest known card beside it. `recording` has what else a machine does (the allocator,
error messages), and `comparison` compares two of its recordings.

May import `real`, `hardware` and `formatting`.
"""
