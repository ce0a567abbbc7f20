"""The machine's state as it changes, for everything that shows it live. Start with `source`.

One `source` a kernel watches the machine; `publisher` decides when to send; `messages` has the format (its JSON
schema is `telemetry.schema.json`); `comms` carries them to JupyterLab; `rolling_window` is the last stretch of the
timeline.

May import `session`, `trace`, `advice`, `timeline`, `driver` and what is below.
"""
