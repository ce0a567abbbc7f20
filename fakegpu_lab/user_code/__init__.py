"""The user's own code: where it runs, how a cell is executed, how its errors look. Start with `tracebacks`.

`environment` finds IPython, and names the environment variables of a machine; `cell_code` compiles a cell magic's body
so that errors point at the cell's own lines; `origin` tells the program's code from that of Python and of packages;
`tracebacks` removes our frames from what the user sees, and `warning_lines` lets warnings name the user's lines;
`magic_line` parses the arguments of magics; `interrupts` lets Ctrl-C and Stop wait until the machine is consistent.

Imports nothing of the package.
"""
