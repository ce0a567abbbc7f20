"""Running a program on several ranks of this process. Start with `in_process`.

`in_process` is behind `lab.run_ranks` and ``%%ranks``; `launchers` catches `mp.spawn` and its relatives in a notebook,
where a new process could not run what a cell defines.

May import everything of `ranks` but `install`.
"""
