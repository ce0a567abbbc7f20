"""A cell's text, read without running it. Start with `source`.

`source` makes Python of a cell, `bindings` finds the names that it binds, `reached` the calls that can run at all.

Imports nothing else of `course`.
"""
