"""Copies and collectives in simulated time. Start with `copies`.

`copies` charges transfers (pageable and pinned, peer to peer); `collectives` runs each device's part of a collective on
a stream of its own; `pinned_memory` charges the host for pinning.

May import everything of `hardware` but `machine`.
"""
