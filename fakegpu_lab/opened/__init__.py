"""Recordings of real cards: files that PyTorch's profiler and its memory history wrote. Start with `opening`.

`content` reads a file, with limits. `trace_file` reads the events of a profiler's trace; `threads` finds out what each
host thread was in the middle of when it launched something; `device_work` makes the records of it, `device_memory`
those of memory. `own_file` reads what `Recording.to_chrome_trace` wrote. `recorded_trace` is the recording, `ranks`
joins those of several ranks. `plain_pickle` and `snapshot` read a memory snapshot. Such files come from somebody else:
what is in them is checked and limited, and nothing of it is executed or looked up on this computer.

May import `recording`, and what is below it.
"""
