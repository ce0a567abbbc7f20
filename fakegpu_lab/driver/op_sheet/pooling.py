"""Pooling, padding, interpolation and grid samplers."""

from __future__ import annotations

from fakegpu_lab.driver.asserts import failing_threads as threads
from fakegpu_lab.driver.base.cuda_messages import TORCH_VERSION
from fakegpu_lab.driver.base.half_precision import BOTH
from fakegpu_lab.driver.cost.op_row import Assert, row
from fakegpu_lab.driver.meta import shapes
from fakegpu_lab.driver.placement import dtypes
from fakegpu_lab.driver.placement.determinism import alert, alert_if, cudnn_samples

row("max_pool2d_with_indices", grows=False, no_integers="max_pool2d_with_indices_out_cuda_frame")
row("max_pool2d_with_indices_backward", "avg_pool2d_backward", grows=False)
row("max_pool3d_with_indices", no_integers="max_pool3d_with_indices_out_frame")
if TORCH_VERSION < (2, 13):
    row("max_pool3d_with_indices_backward", alert=alert("max_pool3d_with_indices_backward_cuda"))
row("avg_pool2d", checks=dtypes.avg_pool2d, no_integers="avg_pool2d_out_cuda_frame")
row("avg_pool3d", in_float32=BOTH)
row("avg_pool3d_backward", in_float32=BOTH, alert=alert("avg_pool3d_backward_cuda"))
row("_adaptive_avg_pool2d", grows=False)
row("_adaptive_avg_pool2d_backward", alert=alert("adaptive_avg_pool2d_backward_cuda"))
row("_adaptive_avg_pool3d", in_float32=BOTH)
row("_adaptive_avg_pool3d_backward", in_float32=BOTH, alert=alert("adaptive_avg_pool3d_backward_cuda"))
row("adaptive_max_pool2d_backward", alert=alert("adaptive_max_pool2d_backward_cuda"))
row("fractional_max_pool2d_backward", alert=alert("fractional_max_pool2d_backward_cuda"))
row("fractional_max_pool3d_backward", shape=shapes.like(1), alert=alert("fractional_max_pool3d_backward_cuda"))
row("max_unpool2d", asserts=Assert("Found an invalid max index", threads.max_unpool2d))

for _name in ("reflection_pad1d_backward", "reflection_pad3d_backward"):
    row(_name, alert=alert(f"{_name}_out_cuda"))
for _name in ("reflection_pad2d_backward", *(f"replication_pad{dims}d_backward" for dims in (1, 2, 3))):
    row(_name, alert=alert(f"{_name}_cuda"))

for _name in ("linear1d", "bilinear2d", "bicubic2d", "trilinear3d"):
    row(f"upsample_{_name}", no_integers=f"upsample_{_name}_out_frame")
    row(f"upsample_{_name}_backward", alert=alert(f"upsample_{_name}_backward_out_cuda"))
for _name in ("bicubic2d_aa", "bilinear2d_aa"):
    row(f"_upsample_{_name}", in_float32=BOTH, no_integers="upsample_bilinear2d_out_frame")  # one kernel for both
    row(f"_upsample_{_name}_backward", in_float32=BOTH, alert=alert(f"upsample_{_name}_backward_out_cuda"))
row("_upsample_lanczos2d_aa", "_upsample_lanczos2d_aa_backward", no_kernel="CUDA")

row("grid_sampler_2d", "grid_sampler_3d", in_float32=BOTH)  # cuda/GridSampler.cu
row(
    "grid_sampler_2d_backward",
    in_float32=BOTH,
    alert=alert_if("grid_sampler_2d_backward_cuda", lambda a: not cudnn_samples(a)),
)
row("grid_sampler_3d_backward", in_float32=BOTH, alert=alert("grid_sampler_3d_backward_cuda"))
