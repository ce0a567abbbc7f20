"""TorchScript, torch.export and torch.compile with device tensors. Start with `torch_compile`.

`export` has FakeTensors and higher-order operators, `torchscript` moving and loading.

May import `driver.dispatch` and everything below it.
"""
