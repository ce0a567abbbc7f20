"""Several ranks in one process or in many: scheduling, process groups, collectives, hangs. Start with `launching`.

Rooms, from top to bottom: `install` (patches of torch.distributed while a machine is enabled), `launching` (ranks as
threads of this process), `torchrun` (ranks that are real processes) and `planning` (ranks that are only implied),
`process_groups` (what torch calls), `diagnosis` (messages about hangs), `collectives` (data and cost), `scheduling`
(one rank at a time). `dist` is torch.distributed without types, `rank_conditions` finds an ``if rank == …``.

May import `driver`, `processes`, `hardware`.
"""
