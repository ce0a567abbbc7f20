"""The process groups that torch.distributed, DDP and DTensor call. Start with `process_group`.

`argument_checks` has what NCCL and Gloo refuse, `work_handles` what ``async_op=True`` returns. The rest adapts torch's
own code: `ddp_reducer`, `dtensor`, `functional_collectives`, `object_collectives`, `backends`, `assumed_values`.

May import `ranks.collectives`, `ranks.scheduling`.
"""
