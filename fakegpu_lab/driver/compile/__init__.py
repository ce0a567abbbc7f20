"""TorchScript, torch.export and torch.compile with device tensors. Start with `torch_compile`.

May import `driver.tensor_api` and everything below it.
"""
