"""Running a program on several ranks of this process. Start with `in_process`.

`in_process` implements `lab.run_ranks` and ``%%ranks``; `launchers` replaces `mp.spawn` and related functions in a
notebook, where a new process could not run a cell's functions.

May import everything of `ranks` but `install`.
"""
