"""A recording as a figure, as tables, and as a file for Perfetto. Start with `recorded`.

`recorded` is the part of a recording that this room reads. `figure` draws it from `lanes` of bars, with texts from
`hover` and `memory` curves; `tables` sums it up by kernel, source line and module; `chrome` writes a Trace Event file.
Shared by these: `kernel_classes`, `labels` (shapes and source lines), `spans` (stretches of time).

May import `hardware`, `formatting`, `user_code`, and torch.
"""
