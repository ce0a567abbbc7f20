"""Writing lessons: begin one, check it. Start with `check`.

`new` and `add` write a lesson and an exercise to change; `check` runs a lesson as its students will meet it; `rules`
has what can be seen without running it; `answers` puts other answers into a source notebook.

May import everything else of `course` but `magics`.
"""
