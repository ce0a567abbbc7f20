"""A submission's process: confined, and run cell by cell. Start with `process`, then `cell_runner`.

`process` is the grader's side; it starts `confine`, inside of `bubblewrap` where that is installed. `confine` gives up
what a submission does not need and then runs `cell_runner`. The two sides talk over `sealed_channel`. `limits` are the
resources that a submission may use, and `shell` is IPython without a front end.

May import `course.flags`.
"""
