"""The sections of `real_gpu.py`: plain torch, no fakegpu_lab, each module one section with a `record` function."""
