"""Writing grades: tables, pages and nbgrader's database. Start with `tables`.

`tables` writes the CSV, `pages` the feedback and the instructor's page, `gradebook` nbgrader's database.

May import everything else of `course.grade`.
"""
