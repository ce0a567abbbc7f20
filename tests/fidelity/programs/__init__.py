"""The programs that published figures were measured with, written again: `networks`, `steps`, `data_parallel`, `peaks`,
`small_batches`, `compiled`.

All run under ``compute="meta"``: no numbers, the real shapes, so that a step of a large model takes a second or two.
"""
