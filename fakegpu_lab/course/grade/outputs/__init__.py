"""Grades, written out. Start with `tables`.

`tables` makes the CSV, `pages` the feedback and the instructor's page, `gradebook` writes to nbgrader's database.

May import everything else of `course.grade`.
"""
