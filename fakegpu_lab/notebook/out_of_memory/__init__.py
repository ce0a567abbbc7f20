"""What a notebook shows after an out-of-memory error. Start with `postmortem`.

`postmortem` says what filled the memory and who holds it; `remedies` says what would have fitted. The facts are
gathered in `driver.memory_report.out_of_memory`, at the moment of the error.
"""
