"""Sizes, times and tables, written for people. Start with `units`.

`units` writes bytes, durations, rates and counts; `table` is a small table for a terminal, a notebook or a file;
`drawing` is SVG with a text alternative; `printable` makes other people's text safe to write. Everything that shows
numbers uses these, so that a number looks the same everywhere.

Imports nothing of the package.
"""
