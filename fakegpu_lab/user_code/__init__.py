"""The user's own code: where it runs, how a cell is executed, how its errors look. Start with `tracebacks`.

`environment` finds IPython, and names the environment variables of a machine; `cell_code` compiles a cell magic's body
so that errors point at the cell's own lines; `tracebacks` removes our frames from what the user sees, and
`warning_lines` lets warnings name the user's lines.

Imports nothing of the package.
"""
