"""Tools for authors of lessons. Start with `check`.

`new` writes a lesson and `add` an exercise, for the author to change; `rename` changes names and points; `check` runs a
lesson as its students will; `together` grades many wrong answers in one run; `rules` has the checks that need not run
it; `answers` puts other answers into a source notebook.

May import everything else of `course`.
"""
