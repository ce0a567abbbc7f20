"""`torch.profiler` and `benchmark.Timer` in simulated time. Start with `torch_profiler`.

`session` collects what the simulation does while the profiler runs. `simulated_times` gives Kineto's events their
times, `results` joins them with the simulated kernels, `events` defines an event, `chrome_export` writes a file for
Perfetto. `benchmark_timer` is apart from these.

May import `driver.recorder` and everything below it.
"""
