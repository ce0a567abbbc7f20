"""Running a check and showing its result. Start with `checking`.

`statements` reads a check's text, and `checking` runs every part of it, even after one failed; `record` is what it
found, as data; `card` writes that as text and HTML; `result` is the check cell's value: the points, shown as a card.
When a class is graded, `observe` runs the parts in the submission's process and reports what they see, and
`examination` judges that in the grader's, with `canaries` of which it knows the truth. `for_show` finds what a check
counts although no result uses it.

May import `course.expect`.
"""
