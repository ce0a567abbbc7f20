"""What is noted while somebody records. Start with `recording`.

`recording` gives each kernel its name, shapes, line and module; `races` finds reads and writes on two streams that
nothing orders. Neither costs anything while nobody records.

May import `driver.dispatch` and everything below it.
"""
