"""CUDA graphs: ops are noted while they are captured, and computed again at every replay. Start with `capture`.

`replay` launches a captured graph, and `pool_memory` is what graphs of one pool share. `torch_cuda.graphs` is torch's
interface. What a capture forbids is in `base.graph_capture`.

May import `driver.recorder` and everything below it.
"""
