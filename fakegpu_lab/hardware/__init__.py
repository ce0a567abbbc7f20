"""The simulated machine: devices, their memory and their counters. Pure Python: nothing here imports torch."""
