"""TorchScript, torch.export and torch.compile with device tensors. Start with `torch_compile`.

`export` has FakeTensors and higher-order operators, `torchscript` saving and loading, `graph_printing` the texts of
TorchScript's graphs. May import `driver.dispatch` and everything below it.
"""
