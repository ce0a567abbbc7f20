"""What moves between host and devices, and between devices, in simulated time. Start with `copies`.

`copies` has what a transfer is charged (pageable and pinned, peer to peer); `collectives` puts each device's part of a
collective on a stream of its own.

May import everything of `hardware` but `machine`.
"""
