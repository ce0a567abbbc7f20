"""The sections of a recording that only `real_gpu.py` makes; `fakegpu_lab/measure/recording` has the others."""
