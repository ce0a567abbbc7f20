"""Lessons and a student's progress in them. Start with `lesson`.

`lesson` reads ``lesson.yaml``; `lesson_library` copies lessons into a student's folder; `classroom` is the lesson that
the open notebook belongs to; `progress` is the JSON file beside it; `pages` draws both; `release` cuts solutions out.

May import `course.checks`, `course.expect`.
"""
