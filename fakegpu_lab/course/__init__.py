"""Lessons: exercises, checks on what the simulated hardware did, hints, progress, grading. Start with `lesson_magics`.

From the bottom: `flags` says why a submission is flagged, `expect` has what a check can expect, `checks` runs a
check, `lessons` has lessons and progress, `lesson_magics` is what a notebook uses, `pictures` and `draw` draw for
lessons, `grade` grades a class, `authoring` helps to write a lesson.

May import everything except `notebook`, `sidebar` and `cli`.
"""
