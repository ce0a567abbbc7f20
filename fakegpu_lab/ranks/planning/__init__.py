"""One rank of a large job, run alone: what ``fakegpu-lab plan`` measures. Start with `implied_ranks`.

`implied_ranks` runs one rank's program in a world whose other ranks are only implied; `figures` collects what it
needed; `one_rank` runs a function of this process in such a world.

May import `ranks.process_groups` and everything below it. `figures` imports neither torch nor the rest of `ranks`.
"""
