"""Grading a class. Start with `one_submission`, then `whole_class`.

`submissions` finds what was handed in and `graded_lesson` the lesson to grade it by; `repair` puts locked cells back;
`sandbox` runs the notebook in a confined process and folder of its own; `examiner` judges, in the grader's process,
what checks saw there; `course.flags` has what an instructor should look at. `outcome` is the result, which `journal`
keeps for a run that is resumed, and `outputs` writes as tables and pages.

May import `course.lessons` and what is below. Lessons import nothing from here.
"""
