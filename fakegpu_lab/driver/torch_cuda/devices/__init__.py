"""torch.cuda's devices: how many, which is current, what they are. Start with `current_device`.

`lifecycle` has `is_available` and `init`, `properties` has `get_device_properties`, `device_type` lets C++ print
"cuda", `tensor_types` and `default_type` have `torch.cuda.FloatTensor`.
"""
