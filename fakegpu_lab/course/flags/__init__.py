"""Why a submission is flagged for the instructor. Start with `policy`.

`policy` reads a submission's cells without running them, by the lists in `allowed`.
In the submission's process, `tampering` detects whether it replaced functions that a check relies on, and `armed` what
it left to act while a check runs.

May import `course.cell_text`.
"""
