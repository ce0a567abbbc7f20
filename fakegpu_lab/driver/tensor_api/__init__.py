"""What Python asks of a device tensor outside the dispatcher. Start with `methods`.

`methods` has `.device`, `.is_cuda`, `repr`; `conversion` has `.to`, `.cuda`, `nn.Module.to`; `constructors` has
``device="cuda"``; the others are named after what they serve: storages, pickling, DLPack, subclasses.

May import `driver.dispatch` and everything below it.
"""
