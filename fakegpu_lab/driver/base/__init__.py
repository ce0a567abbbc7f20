"""What every other room of the driver builds on. Start with `tensor`, then `current`.

`tensor` is FakeCudaTensor, `privateuse1` the C++ device type behind it, `current` the machine and each thread's
current device. `device_memory` takes memory for a tensor, `cuda_messages` has CUDA's sentences, `patches` changes
torch and puts it back. `graph_capture` knows what is being captured into a CUDA graph.

Imports nothing else of the driver.
"""
