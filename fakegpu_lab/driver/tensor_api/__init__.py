"""Python's interface of a device tensor, outside the dispatcher. Start with `methods`.

`methods` has `.is_cuda`, `.numpy`, `repr`; `conversion` has `.to`, `.cuda`, `.data`, `nn.Module.to`; `constructors` has
``device="cuda"``. The other files are named after what they serve: storages, pickling, DLPack, subclasses, lazy
parameters. May import `driver.ops` and everything below it, but not `driver.dispatch`.
"""
