"""Running a check and showing its result. Start with `checking`.

`checking` runs every part of a check, whatever happens in the others; `result` holds points and sentences; `card` shows
them in a notebook and as text.

May import `course.expect`.
"""
