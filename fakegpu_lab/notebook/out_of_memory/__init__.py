"""What a notebook shows after an out-of-memory error. Start with `postmortem`.

`postmortem` shows what filled the memory and what holds it; `remedies` finds what would have fit. Their facts come
from `driver.memory_report.out_of_memory`, which gathers them at the moment of the error.

May import `static_panel` of `notebook`, `timeline`, `driver` and what is below.
"""
