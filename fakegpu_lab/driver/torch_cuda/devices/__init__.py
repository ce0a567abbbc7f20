"""torch.cuda's devices: their number, the current one, their properties. Start with `current_device`.

`lifecycle` initialises CUDA, and follows forks; `properties` has `get_device_properties`, `device_type` has
``torch.device(1)``, `tensor_types` has `torch.cuda.FloatTensor`.
"""
