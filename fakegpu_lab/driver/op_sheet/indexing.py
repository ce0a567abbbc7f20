"""Ops that read or write where an index says, and embeddings."""

from __future__ import annotations

from fakegpu_lab.driver.asserts import failing_threads as threads
from fakegpu_lab.driver.asserts import kernel_asserts
from fakegpu_lab.driver.copies import hidden_waits
from fakegpu_lab.driver.cost import estimators
from fakegpu_lab.driver.cost.estimators import gathering, scattering
from fakegpu_lab.driver.cost.op_row import Assert, row
from fakegpu_lab.driver.ops import differences, fused_kernels
from fakegpu_lab.driver.placement import dtypes, rules
from fakegpu_lab.driver.placement.determinism import alert, alert_if
from fakegpu_lab.driver.placement.memory_preflight import embedding_bound

_RANGE = "out of bounds for dimension"
_SELF = "index out of range in self|INDICES element is out of DATA bounds"
_TAKEN = "out of range: tried to access index"

row(
    "index",
    "_unsafe_index",
    cost=gathering,
    asserts=Assert(_RANGE, threads.index),
    waits=hidden_waits.index,
    devices=rules.index,
)
row("index_select", cost=gathering, asserts=Assert(_SELF, threads.index_select))
row("gather", cost=gathering, grows=False, asserts=Assert(_RANGE, threads.gather), expanded_index=True)
row("take", cost=gathering, asserts=Assert(_TAKEN, threads.take))
row("take_along_dim", cost=gathering)
row("masked_select", "nonzero", "nonzero_numpy", synchronises=True)
row(
    "repeat_interleave",
    asserts=Assert("repeats can not be negative|^allocated size", threads.repeat_interleave),
    waits=hidden_waits.repeat_interleave,
)
row("where", devices=rules.where)

_PUT = {
    "cost": scattering,
    "asserts": Assert(_RANGE, threads.index_put),
    "waits": hidden_waits.index_put,
    "devices": rules.index_put,
}
row("index_put", **_PUT, result_beside_self=True)
row("_unsafe_index_put", **_PUT, result_beside_self=True)
row("_index_put_impl_", **_PUT)
row(
    "put",
    cost=scattering,
    asserts=Assert(_TAKEN, threads.take),
    devices=rules.kernel("_put_"),
    alert=alert_if("put_", lambda a: bool(a.get("accumulate"))),
)
row(
    "index_fill",
    cost=scattering,
    asserts=Assert(_RANGE, threads.along(kernel_asserts.FILL, negative=True)),
    waits=hidden_waits.value,
    devices=rules.index_fill,
    result_beside_self=True,
)
row("index_copy", cost=scattering, asserts=Assert(_RANGE, threads.along(kernel_asserts.COPY, negative=False)))
row("index_add", cost=scattering, asserts=Assert(f"{_RANGE}|{_SELF}", threads.index_add))
row("index_reduce", cost=scattering, asserts=Assert(_SELF, threads.index_add), alert=alert("index_reduce_cuda"))
row("scatter_add", cost=scattering, asserts=Assert(_RANGE, threads.scatter), expanded_index=True)
row(
    "scatter_reduce",
    cost=scattering,
    asserts=Assert(_RANGE, threads.scatter),
    expanded_index=True,
    checks=dtypes.scatter,
    alert=alert_if("scatter_reduce_cuda_prod_", lambda a: a["reduce"] == "prod"),
)
row(
    "scatter",
    cost=scattering,
    asserts=Assert(_RANGE, threads.scatter),
    checks=dtypes.scatter,
    alert=alert_if("scatter_reduce_cuda_kernel", lambda a: "src" in a and a.get("reduce") == "multiply"),
)
row("masked_fill", waits=hidden_waits.value, devices=rules.masked_fill)
row(
    "masked_scatter",
    asserts=Assert("Number of elements of source <", threads.masked_scatter),
    devices=rules.kernel("_masked_scatter_"),
)
row("slice_scatter", "select_scatter", "diagonal_scatter", "as_strided_scatter", devices=rules.any_device)

row(
    "embedding",
    cost=gathering,
    bound=embedding_bound,
    asserts=Assert(_SELF, threads.embedding),
    devices=rules.kernel("_index_select", weight="self", indices="index"),
)
row("embedding_renorm_", asserts=Assert(r"^select\(\): index", threads.embedding_renorm))
row("embedding_dense_backward", cost=estimators.embedding_backward, runs=fused_kernels.embedding_backward)
_BAG = {
    "cost": estimators.bag,
    "asserts": Assert(r"num_embeddings but found idx|not in the valid range \[", threads.embedding_bag),
    "values": differences.without_maxima,
}
row("_embedding_bag", "_embedding_bag_forward_only", **_BAG)
row(
    "_embedding_bag_backward",
    "_embedding_bag_dense_backward",
    alert=alert_if("embedding_bag_backward_cuda_max", lambda a: a["mode"] == differences.MAX_OF_BAG),
)
