"""libnvidia-ml in Python: what nvidia-ml-py gets in place of NVIDIA's library. Start with `library`.

`library` looks a C function up by its name; `answers` has the functions about the system and its cards,
`process_and_link_answers` those about processes and links; `handles` finds the card of a handle; `arguments` reads and
fills what nvidia-ml-py passes.

May import `nvml`'s files about the machine (`discovery`, `view`, `cards`, `sensors`, `topology`).
"""
