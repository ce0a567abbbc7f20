"""Sizes, times and tables, written for people to read. Start with `units`.

`units` writes bytes, durations, rates and counts; `table` is a small table that reads well in a terminal, a notebook
and a file. Everything that shows a number uses these two, so that one figure looks the same everywhere.

Imports nothing of the package.
"""
