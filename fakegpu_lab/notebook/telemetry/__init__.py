"""The machine's state as it changes, for everything that shows it live. Start with `source`.

A kernel has one `source`, which watches the machine; `publisher` decides when to send, `messages` has the format (its
JSON schema is `telemetry.schema.json`), and `comms` carries messages to JupyterLab. `rolling_window` records the last
stretch of the timeline.

May import `session`, `trace`, `advice`, `timeline`, `driver` and what is below.
"""
