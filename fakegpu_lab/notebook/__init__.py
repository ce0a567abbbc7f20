"""What people see in a notebook: magics, the live panel, cards. Start with `magics`.

`telemetry` is where the panel and JupyterLab's sidebar get their data, `panel` shows it, `static_panel` draws it where
nothing can move. `cell_hooks` acts before and after each cell, `out_of_memory` explains an out-of-memory error.

May import everything but `course`, `frontend` and `cli`.
"""
