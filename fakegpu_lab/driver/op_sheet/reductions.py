"""Reductions, sorting, selection, and softmax."""

from __future__ import annotations

from fakegpu_lab.driver.base.half_precision import BOTH
from fakegpu_lab.driver.copies import hidden_waits
from fakegpu_lab.driver.cost.estimators import selecting, sorting
from fakegpu_lab.driver.cost.op_row import computes, row
from fakegpu_lab.driver.ops import differences
from fakegpu_lab.driver.ops.attention.attention import safe_softmax
from fakegpu_lab.driver.ops.differences import nansum
from fakegpu_lab.driver.placement import rules
from fakegpu_lab.driver.placement.determinism import alert_if

row("amax", "amin", "argmax", "argmin", "cumsum", "mean", "sum", grows=False)
row("nansum", values=nansum)
row("std", "std_mean", "var", in_float32=BOTH, iterates_out=True)
row("var_mean", in_float32=BOTH, iterates_out=True, grows=False)
row("logcumsumexp", iterates_out=True)
row("_softmax", "_softmax_backward_data", "_log_softmax", "_log_softmax_backward_data", grows=False)
row("softmax", grows=False, devices=rules.kernel("_softmax", out="_softmax_out_out"))
row("log_softmax", grows=False, devices=rules.kernel("_log_softmax", out="_log_softmax_out_out"))
row("_safe_softmax", runs=safe_softmax)

row("sort", cost=sorting, grows=False, devices=rules.kernel("sort_stable", out="sort_out_values_stable"))
row("argsort", "msort", cost=sorting)
row("_unique2", "unique_dim", "unique_consecutive", cost=sorting, synchronises=True)
row("mode", cost=sorting, waits=hidden_waits.mode)
row("topk", cost=selecting, grows=False)
row("kthvalue", cost=selecting)
row("median", "nanmedian", cost=selecting, alert=alert_if("median CUDA with indices output", lambda a: "dim" in a))
row("searchsorted", devices=rules.searchsorted)
row("segment_reduce", devices=rules.segment_reduce)

row(
    "histc",
    values=computes(differences.histc),
    waits=hidden_waits.histc,
    alert=alert_if("_histc_cuda with floating point input", lambda a: a["self"].is_floating_point()),
)
row("bincount", synchronises=True, alert=alert_if("_bincount_cuda", lambda a: a.get("weights") is not None))
row(
    "_histogramdd_bin_edges",
    "_histogramdd_from_bin_cts",
    "_histogramdd_from_bin_tensors",
    "histogram",
    no_kernel="CUDA",
)

row("equal", "allclose", "is_nonzero", synchronises=True)
row("_is_all_true", "_is_any_true", reports_asserts=True)
