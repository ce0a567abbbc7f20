"""What people see in a notebook: magics, the live panel, cards. Start with `gpu_magics`.

`telemetry` has the data of the panel and of JupyterLab's sidebar; `panel` shows it live, `static_panel` as a picture or
a table. `cell_hooks` acts before and after each cell; `out_of_memory` explains an out-of-memory error.

May import everything except `course`, `sidebar` and `cli`.
"""
