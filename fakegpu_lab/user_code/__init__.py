"""The user's own code: where it runs, how a cell is executed, how its errors look. Start with `frames`.

`frames` says whose code a file is, finds the user's line, names it, and trims tracebacks; `tracebacks` shows errors
trimmed, and `warning_lines` lets warnings name the user's lines; `environment` finds IPython, and names the environment
variables of a machine; `cell_code` compiles a cell magic's body so that errors point at the cell's own lines;
`magic_line` parses the arguments of magics; `interrupts` lets Ctrl-C and Stop wait until the machine is consistent.

`captured` lists functions that no compiler captures.

Imports nothing of the package.
"""
