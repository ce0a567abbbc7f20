"""The process around the simulation, adapted to it. Start with `torch_internals`.

`torch_internals` keeps parts of torch from going around the simulation, `host_threads` gives each thread of the host a
clock, `program_clock` lets the program's own code read it, `python_time` and `own_code` say what Python takes,
`real_gpus` hides a GPU that this computer really has; `host_limits` knows how much memory and how many processors there
are.

May import `driver.base` and `user_code`.
"""
