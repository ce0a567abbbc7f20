"""A recording as a figure, as tables, and as a file for Perfetto. Start with `recorded`.

`recorded` is the part of a recording that this room reads. `figures` draws it: from `lanes` of bars, with texts from
`hover`, `phases` and `memory` curves; and from `allocations`, which has every tensor's life as plain records. `tables`
sums it up by kernel, source line and module, `peak` says what made the peak; `chrome` writes a Trace Event file.
Shared by these: `kernel_classes`, `labels` (shapes and source lines), `spans` (stretches of time).

May import `hardware`, `formatting`, `user_code`, and torch.
"""
