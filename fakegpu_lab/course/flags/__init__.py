"""Why a submission is flagged for the instructor. Start with `policy`.

`policy` reads a submission's cells without running them: `allowed` lists what an answer may use, `public` follows a
path through the real modules, `names` knows what the cells' names stand for. In the submission's process, `tampering`
detects whether it replaced functions that a check relies on, and `left_behind` what it left to act while a check runs.
`measured_memory` notices what an answer does to the memory that a check measures. `shared` finds what ranks could pass
data through without a message. `beside` looks for libraries that no exercise needs, where a check runs them.

May import `course.cell_text`.
"""
