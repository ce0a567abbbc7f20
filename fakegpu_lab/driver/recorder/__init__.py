"""What the driver notes during a recording. Start with `recording`.

`recording` gives each kernel its name, shapes, line and module; `race_detection` finds reads and writes on two streams
that nothing orders, `host_reads` those on the host; `recorded_buffer` reports allocations; `results` follows, while a
class is graded, whose results others use. Nothing of it costs anything without a recording. The recording itself is
kept by `hardware.time.recorder.Recorder`.

May import `driver.dispatch` and everything below it.
"""
