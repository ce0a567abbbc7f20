"""Why a submission is flagged for the instructor. Start with `source_text`.

`source_text` reads a submission's source for what an instructor should look at; `tampering` runs in the submission's
process and detects whether it replaced functions that a check relies on.

Imports nothing else of `course`.
"""
