"""What parent and child processes pass to each other. Start with `inheritance`.

`inheritance` puts the machine into the environment of child processes, where `fakegpu_lab.autoload` reads it;
`run_reports` collects the reports of all processes of a ``fakegpu-lab run``.

May import `nvml`, `hardware`, `user_code`.
"""
