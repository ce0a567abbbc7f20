"""The process groups that torch.distributed, DDP and DTensor call. Start with `process_group`.

`argument_checks` raises what NCCL and Gloo raise, `work_handles` is what ``async_op=True`` returns, `backends` what
torch asks of a group's backend. The rest adapts torch's own code: `ddp_reducer`, `dtensor`, `functional_collectives`,
`object_collectives`, `assumed_values`.

May import `ranks.collectives`, `ranks.scheduling`.
"""
