"""Why a submission is flagged for the instructor. Start with `source_text`.

`source_text` reads a submission's code for what an instructor should look at; `tampering` finds out, in the
submission's process, whether functions that a check relies on were replaced.

Imports nothing else of `course`.
"""
