"""What a recording is shown as: a table, a figure, a file for Perfetto. Reads nothing but a `Recorded`."""
