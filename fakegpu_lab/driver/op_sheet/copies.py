"""Copies between devices, concatenation, and what the host reads."""

from __future__ import annotations

from fakegpu_lab.driver.copies import transfer
from fakegpu_lab.driver.cost.op_row import row
from fakegpu_lab.driver.placement import rules

row("copy_", runs=transfer.copy_)
row("copy", devices=rules.any_device)
row("_to_copy", runs=transfer.to_copy)
row("detach_copy", binding=False)
row("clone", grows=False)
row("cat", grows=False)
row("stack", grows=False, devices=rules.CAT)
row("_stack", devices=rules.CAT)
row("block_diag", devices=rules.block_diag)
row("_local_scalar_dense", synchronises=True, runs=transfer.local_scalar_dense)
row("is_pinned", binding=False, runs=transfer.is_pinned)
row("pin_memory", binding=False, runs=transfer.pin_memory)
row("_pin_memory", runs=transfer.pin_memory)
row("record_stream", runs=transfer.record_stream)
row("_pack_padded_sequence", runs=transfer.pack_padded_sequence)
