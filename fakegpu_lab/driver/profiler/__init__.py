"""`torch.profiler` and `benchmark.Timer` in simulated time. Start with `torch_profiler`.

`simulated_times` gives Kineto's events their times, `results` joins them with the simulated kernels, `events` is the
result's form, `chrome_export` writes it for Perfetto.

May import `driver.recorder` and everything below it.
"""
