"""CUDA graphs: ops are noted while they are captured, and computed again at every replay. Start with `capture`.

`torch_cuda.graphs` is torch's face of it. What may not happen during a capture is in `base.graph_capture`.

May import `driver.recorder` and everything below it.
"""
