"""What a check sees, as plain data, and how it is sent. Start with `conversion`.

`codec` writes it as JSON and reads it again, `records` does so for the records of a recording. `in_place` knows which
values have changed, `held` which tensors a value holds. Imports nothing else of `expect`.
"""
