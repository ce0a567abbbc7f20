"""The user's own code: where it runs, how a cell is executed, where its errors point. Start with `tracebacks`.

`environment` knows whether IPython is there and which environment variables we read; `cell_code` compiles a cell
magic's body so that errors point at the cell's own lines; `tracebacks` removes our frames from what the user sees.

Imports nothing of the package.
"""
