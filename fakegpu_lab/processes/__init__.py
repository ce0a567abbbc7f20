"""What parent and child processes hand each other. Start with `inheritance`.

`inheritance` leaves the machine in the environment for child processes (`fakegpu_lab.autoload` picks it up there);
`run_reports` collects what each process of a ``fakegpu-lab run`` did into one report.

May import `nvml`, `hardware`, `user_code`.
"""
