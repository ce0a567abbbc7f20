"""The results of a run, and the catalogue of GPUs, as tables and JSON. Start with `run_tables`.

`run_tables` is printed by ``fakegpu-lab run``, `plan_table` by ``fakegpu-lab plan``, `gpu_list` by
``fakegpu-lab profiles``. Of the machine they read a `Snapshot` and nothing else.

May import `ranks.planning`, `processes`, `hardware`, `formatting`.
"""
