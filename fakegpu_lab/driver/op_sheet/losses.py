"""Losses, and asserts that a program makes itself."""

from __future__ import annotations

from fakegpu_lab.driver.asserts import failing_threads as threads
from fakegpu_lab.driver.base.half_precision import BOTH
from fakegpu_lab.driver.cost.estimators import picking, writing
from fakegpu_lab.driver.cost.op_row import Assert, row
from fakegpu_lab.driver.meta import shapes
from fakegpu_lab.driver.placement import rules
from fakegpu_lab.driver.placement.determinism import alert, alert_if

_LABELS = r"(?s)^Target .* is out of bounds"

row("nll_loss_forward", cost=picking, grows=False, asserts=Assert(_LABELS, threads.nll_loss))
row(
    "nll_loss2d_forward",
    cost=picking,
    asserts=Assert(_LABELS, threads.nll_loss2d),
    alert=alert_if("nll_loss2d_forward_out_cuda_template", lambda a: a.get("reduction", 1) != 0),
)
row("nll_loss_backward", cost=writing, grows=False)
row("nll_loss2d_backward", cost=writing)
row("huber_loss", "l1_loss", "mse_loss", "mse_loss_backward", "smooth_l1_loss", grows=False)
row(
    "binary_cross_entropy",
    asserts=Assert("should be between 0 and 1", threads.binary_cross_entropy),
    cpu_scalars=False,
)
row("binary_cross_entropy_backward", cpu_scalars=False)
row("binary_cross_entropy_with_logits", devices=rules.bce_with_logits)
row("multi_margin_loss", in_float32=BOTH, asserts=Assert("target out of range", threads.multi_margin_loss))
row("multi_margin_loss_backward", "multilabel_margin_loss_backward", in_float32=BOTH, shape=shapes.like(1))
row("multilabel_margin_loss_forward", in_float32=BOTH)
row("_ctc_loss", devices=rules.any_device)
row("_ctc_loss_backward", shape=shapes.like(1), alert=alert("ctc_loss_backward_gpu"))

row("_assert_async", asserts=Assert("^(?!Boolean value of Tensor)", threads.assert_async))
