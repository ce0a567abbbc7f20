"""What a run did and which GPUs there are, as tables and JSON. Start with `run_tables`.

`run_tables` is what ``fakegpu-lab run`` prints, `plan_table` what ``fakegpu-lab plan`` prints, `gpu_list` the catalogue
as ``fakegpu-lab profiles`` lists it. They read a `Snapshot` and nothing else of the machine.

May import `ranks.planning`, `processes`, `hardware`, `formatting`.
"""
