"""Every op of CUDA's autocast lists runs in the dtype that CUDA runs it in, given wide inputs and given narrow ones."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pytest
import torch
import torch.nn.functional as F
from torch.testing._internal.autocast_test_lists import AutocastTestLists

import fakegpu_lab as lab
from fakegpu_lab.driver.autocast import op_lists as lists

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

HALF, FLOAT = torch.float16, torch.float32

NAMES = {
    *lists.LOWER_PRECISION_FP,
    *lists.FP32,
    *lists.FP32_SET_OPT_DTYPE,
    *lists.FP32_APPEND_DTYPE,
    *lists.PROMOTE,
    *lists.BANNED,
}


@pytest.fixture(scope="module", autouse=True)
def one_machine() -> Iterator[None]:
    """One machine for the whole file: there are hundreds of small cases."""
    lab.enable("a100", memory="4GiB")
    yield
    lab.disable()


def overload(name: str) -> Callable[..., Any]:
    packet, _, rest = name.partition(".")
    return getattr(getattr(torch.ops.aten, packet), rest or "default")  # type: ignore[no-any-return]


REGISTERED = {
    name.removeprefix("aten::")
    for name in torch._C._dispatch_get_all_op_names()
    if torch._C._dispatch_has_kernel_for_dispatch_key(name, "AutocastCUDA")
    and not name.lower()
    .rpartition(".")[2]
    .startswith(("names_", "dimname", "dim_dimname"))  # before 2.13: named tensors
}


def test_the_table_is_the_list_that_torch_registers_for_cuda() -> None:
    assert NAMES | {"_cudnn_rnn"} >= REGISTERED  # which is in CUDA builds alone; here `autocast.recurrent` has it
    if torch.__version__ >= "2.13":  # whose list was copied
        assert REGISTERED - {"_cudnn_rnn"} == NAMES


def randn(*shape: int, dtype: torch.dtype = FLOAT) -> torch.Tensor:
    return torch.randn(shape, device="cuda").to(dtype)


def cell(gates: int, lstm: bool = False) -> Callable[[torch.dtype], list[Any]]:
    def arguments(dtype: torch.dtype) -> list[Any]:
        hidden: Any = randn(2, 4, dtype=dtype)
        biases = (randn(gates * 4, dtype=dtype), randn(gates * 4, dtype=dtype))
        weights = (randn(gates * 4, 4, dtype=dtype), randn(gates * 4, 4, dtype=dtype))
        return [randn(2, 4, dtype=dtype), [hidden, randn(2, 4, dtype=dtype)] if lstm else hidden, *weights, *biases]

    return arguments


def of(*items: Any, **keywords: Any) -> Callable[[torch.dtype], list[Any]]:
    """Arguments in a dtype: a tuple of sizes stands for a tensor, a list of such for a list of tensors."""

    def make(item: Any, dtype: torch.dtype) -> Any:
        if isinstance(item, tuple):
            return torch.rand(item, device="cuda").mul(0.8).add(0.1).to(dtype)
        if isinstance(item, list) and item and isinstance(item[0], tuple):
            return [make(one, dtype) for one in item]
        return item() if callable(item) else item

    return lambda dtype: [make(item, dtype) for item in items]


def labels(*shape: int) -> Callable[[], torch.Tensor]:
    return lambda: torch.zeros(shape, dtype=torch.long, device="cuda")


IMAGE, KERNEL = (2, 3, 6, 6), (4, 3, 3, 3)
CONVOLUTION = (IMAGE, KERNEL, (4,), [1, 1], [0, 0], [1, 1], False, [0, 0], 1)
M = (4, 4)
V = (4,)

CASES: dict[str, Callable[[torch.dtype], list[Any]]] = {
    "_convolution": of(*CONVOLUTION, False, False, True, True),
    "_convolution.deprecated": of(*CONVOLUTION, False, False, True),
    "convolution": of(*CONVOLUTION),
    "conv1d": of((2, 3, 6), (4, 3, 3)),
    "conv2d": of(IMAGE, KERNEL),
    "conv3d": of((2, 3, 6, 6, 6), (4, 3, 3, 3, 3)),
    "conv_tbc": of((6, 2, 3), (3, 3, 4), (4,)),
    "conv_transpose1d": of((2, 4, 6), (4, 3, 3)),
    "conv_transpose2d.input": of((2, 4, 6, 6), KERNEL),
    "conv_transpose3d.input": of((2, 4, 6, 6, 6), (4, 3, 3, 3, 3)),
    "addbmm": of(M, (2, 4, 4), (2, 4, 4)),
    "addmm": of(M, M, M),
    "addmv": of(V, M, V),
    "addr": of(M, V, V),
    "baddbmm": of((2, 4, 4), (2, 4, 4), (2, 4, 4)),
    "bmm": of((2, 4, 4), (2, 4, 4)),
    "chain_matmul": of([M, M, M]),
    "einsum": of("ij,jk->ik", [M, M]),
    "linalg_multi_dot": of([M, M, M]),
    "linalg_vecdot": of(M, M),
    "linear": of(M, M, V),
    "matmul": of(M, M),
    "mm": of(M, M),
    "mv": of(M, V),
    "prelu": of(M, (1,)),
    "_thnn_fused_gru_cell": of((2, 12), (2, 12), (2, 4), (12,), (12,)),
    "_thnn_fused_lstm_cell": of((2, 16), (2, 16), (2, 4), (16,), (16,)),
    "lstm_cell": cell(4, lstm=True),
    "gru_cell": cell(3),
    "rnn_relu_cell": cell(1),
    "rnn_tanh_cell": cell(1),
    "scaled_dot_product_attention": of((1, 2, 4, 8), (1, 2, 4, 8), (1, 2, 4, 8)),
    **{
        name: of(M)
        for name in (
            *("acos", "asin", "cosh", "erfinv", "exp", "expm1", "log", "log10", "log1p", "log2", "reciprocal", "rsqrt"),
            *("sinh", "softplus", "tan", "pdist", "nuclear_norm", "prod", "sum", "linalg_vector_norm", "norm.Scalar"),
        )
    },
    "pow.Scalar": of(2.5, M),
    "pow.Tensor_Scalar": of(M, 1.5),
    "pow.Tensor_Tensor": of(M, M),
    "group_norm": of((2, 4, 3), 2, V, V),
    "layer_norm": of(M, [4], V, V),
    "native_layer_norm": of(M, [4], V, V, 1e-5),
    "rms_norm": of(M, [4], V),
    "cdist": of(M, M),
    "cosine_similarity": of(M, M),
    "dist": of(M, M),
    "frobenius_norm.dim": of(M, [0, 1]),
    "nuclear_norm.dim": of(M, [0, 1]),
    "logsumexp": of(M, [1]),
    "renorm": of(M, 2, 0, 1.0),
    "binary_cross_entropy_with_logits": of(M, M),
    "cosine_embedding_loss": of(M, M, lambda: torch.ones(4, device="cuda")),
    "hinge_embedding_loss": of(M, lambda: torch.ones(4, dtype=torch.int, device="cuda")),
    "huber_loss": of(M, M),
    "kl_div": of(M, M),
    "l1_loss": of(M, M),
    "margin_ranking_loss": of(M, M, V),
    "mse_loss": of(M, M),
    "multi_margin_loss": of(M, labels(4)),
    "multilabel_margin_loss": of(M, labels(4, 4)),
    "nll_loss": of(M, labels(4)),
    "nll_loss2d": of((2, 3, 4, 4), labels(2, 4, 4)),
    "poisson_nll_loss": of(M, M, True, False, 1e-8, 1),
    "smooth_l1_loss": of(M, M),
    "soft_margin_loss": of(M, lambda: torch.ones(4, 4, dtype=torch.long, device="cuda")),
    "triplet_margin_loss": of(M, M, M),
    "_upsample_bicubic2d_aa": of(IMAGE, [8, 8], False),
    "_upsample_bilinear2d_aa": of(IMAGE, [8, 8], False),
    "_upsample_nearest_exact1d": of((2, 3, 6), [8]),
    "_upsample_nearest_exact2d": of(IMAGE, [8, 8]),
    "_upsample_nearest_exact3d": of((2, 3, 4, 4, 4), [8, 8, 8]),
    "upsample_bicubic2d": of(IMAGE, [8, 8], False),
    "upsample_bilinear2d": of(IMAGE, [8, 8], False),
    "upsample_linear1d": of((2, 3, 6), [8], False),
    "upsample_nearest1d": of((2, 3, 6), [8]),
    "upsample_nearest2d": of(IMAGE, [8, 8]),
    "upsample_nearest3d": of((2, 3, 4, 4, 4), [8, 8, 8]),
    "upsample_trilinear3d": of((2, 3, 4, 4, 4), [8, 8, 8], False),
    "cumprod": of(M, 0),
    "cumsum": of(M, 0),
    "log_softmax.int": of(M, 1),
    "softmax.int": of(M, 1),
    "prod.dim_int": of(M, 1),
    "sum.dim_IntList": of(M, [1]),
    "linalg_matrix_norm": of(M, 1),
    "linalg_matrix_norm.str_ord": of(M, "fro"),
    "norm.ScalarOpt_dim": of(M, 2, [1]),
}
"""One call of every op on a list, but for the promoted ones and those that no card but CUDA's own reaches."""

if "linalg_matrix_sqrth" in NAMES:  # since torch 2.15
    CASES["linalg_matrix_sqrth"] = lambda dtype: [torch.eye(4, device="cuda", dtype=dtype)]


def floats(result: Any) -> list[torch.Tensor]:
    results = result if isinstance(result, (list, tuple)) else [result]
    return [r for r in results if isinstance(r, torch.Tensor) and r.is_floating_point()]


def expected_dtype(name: str) -> torch.dtype:
    return HALF if name in lists.LOWER_PRECISION_FP else FLOAT


def test_every_op_has_its_case() -> None:
    promoted = {*lists.PROMOTE, *lists.BANNED}
    refused = {"cudnn_convolution", "cudnn_convolution_transpose"}
    assert set(CASES) == NAMES - promoted - refused - {"_scaled_dot_product_flash_attention"}


@pytest.mark.parametrize("given", [FLOAT, HALF, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", sorted(CASES.keys() & REGISTERED))
@pytest.mark.filterwarnings("ignore:.*deprecated:UserWarning")
def test_dtype(name: str, given: torch.dtype) -> None:
    """The results' dtype is the list's, whatever the inputs' is."""
    with torch.autocast("cuda"):
        results = floats(overload(name)(*CASES[name](given)))
    assert results
    assert {r.dtype for r in results} == {expected_dtype(name)}


@pytest.mark.parametrize("name", sorted(CASES.keys() & REGISTERED))
@pytest.mark.filterwarnings("ignore:.*deprecated:UserWarning")
def test_values(name: str) -> None:
    """The values are those of the op with its arguments cast by hand, in a region that is off."""
    torch.manual_seed(0)
    arguments = CASES[name](FLOAT if expected_dtype(name) is HALF else HALF)

    def by_hand(argument: Any) -> Any:
        if isinstance(argument, list):
            return [by_hand(item) for item in argument]
        if isinstance(argument, torch.Tensor) and argument.is_floating_point():
            return argument.to(expected_dtype(name))
        return argument

    with torch.autocast("cuda"):
        actual = floats(overload(name)(*arguments))
        with torch.autocast("cuda", enabled=False):
            wanted = floats(overload(name)(*map(by_hand, arguments)))
    torch.testing.assert_close(actual, wanted, equal_nan=True)


@pytest.mark.parametrize("name", sorted(CASES.keys() & REGISTERED))
@pytest.mark.filterwarnings("ignore:.*deprecated:UserWarning")
def test_gradients_have_the_dtype_of_what_they_belong_to(name: str) -> None:
    for given in (FLOAT, HALF):
        arguments = CASES[name](given)
        flat = [item for a in arguments for item in (a if isinstance(a, list) else [a])]
        leaves = [a for a in flat if isinstance(a, torch.Tensor) and a.dtype is given]
        for leaf in leaves:
            leaf.requires_grad_()
        with torch.autocast("cuda"):
            results = [r for r in floats(overload(name)(*arguments)) if r.requires_grad]
        sum(r.float().sum() for r in results).backward()  # type: ignore[union-attr]
        for leaf in leaves:
            assert leaf.grad is None or leaf.grad.dtype is given
        assert not leaves or any(leaf.grad is not None for leaf in leaves)


PROMOTED: dict[str, Callable[[torch.dtype, torch.dtype], list[Any]]] = {
    "addcdiv": lambda a, b: [randn(4, dtype=a), randn(4, dtype=b), torch.ones(4, device="cuda", dtype=b)],
    "addcmul": lambda a, b: [randn(4, dtype=a), randn(4, dtype=b), randn(4, dtype=b)],
    "atan2": lambda a, b: [randn(4, dtype=a), randn(4, dtype=b)],
    "bilinear": lambda a, b: [randn(1, 2, dtype=a), randn(1, 2, dtype=b), randn(1, 2, 2, dtype=b)],
    "cross": lambda a, b: [randn(3, dtype=a), randn(3, dtype=b), 0],
    "dot": lambda a, b: [randn(4, dtype=a), randn(4, dtype=b)],
    "vdot": lambda a, b: [randn(4, dtype=a), randn(4, dtype=b)],
    "grid_sampler": lambda a, b: [randn(1, 2, 3, 3, dtype=a), randn(1, 2, 2, 2, dtype=b), 0, 0, False],
    "index_put": lambda a, b: [randn(4, dtype=a), [torch.ones(1, dtype=torch.long, device="cuda")], randn(1, dtype=b)],
    "scatter_add": lambda a, b: [randn(4, dtype=a), 0, labels(4)(), randn(4, dtype=b)],
    "tensordot": lambda a, b: [randn(2, 2, dtype=a), randn(2, 2, dtype=b), [0], [0]],
}


@pytest.mark.parametrize(("first", "second"), [(FLOAT, HALF), (HALF, FLOAT), (HALF, HALF), (FLOAT, FLOAT)], ids=str)
@pytest.mark.parametrize("name", sorted(REGISTERED.intersection(lists.PROMOTE)))
def test_promoted_to_the_widest(name: str, first: torch.dtype, second: torch.dtype) -> None:
    with torch.autocast("cuda"):
        result = overload(name)(*PROMOTED[name](first, second))
    assert result.dtype is (HALF if first is second is HALF else FLOAT)


def test_a_bias_is_cast_but_has_no_say_in_the_widest_dtype() -> None:
    with torch.autocast("cuda"):
        result = torch.bilinear(randn(1, 2, dtype=HALF), randn(1, 2, dtype=HALF), randn(1, 2, 2, dtype=HALF), randn(1))
    assert result.dtype is HALF


def test_promotion_knows_the_regions_dtype_and_float32_only() -> None:
    with (
        torch.autocast("cuda"),
        pytest.raises(RuntimeError, match=r"^Unexpected floating ScalarType in at::autocast::prioritize$"),
    ):
        torch.atan2(randn(4, dtype=torch.bfloat16), randn(4, dtype=torch.bfloat16))


def test_flash_attention_by_its_own_name_is_on_the_list() -> None:
    """There is no such kernel here, so it is asked only which dtypes reach it."""
    seen: list[torch.dtype] = []

    class Recorder(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if func is torch.ops.aten._scaled_dot_product_flash_attention.default:
                seen.extend(a.dtype for a in args if isinstance(a, torch.Tensor))
                raise LookupError
            return func(*args, **(kwargs or {}))

    with torch.autocast("cuda"), Recorder(), pytest.raises(LookupError):
        torch.ops.aten._scaled_dot_product_flash_attention(*[randn(1, 2, 4, 8) for _ in range(3)])
    assert seen == [HALF] * 3


@pytest.mark.parametrize("name", ["sum", "prod", "cumsum", "softmax", "log_softmax"])
def test_a_dtype_that_the_call_names_is_respected(name: str) -> None:
    x = randn(4, dtype=HALF)
    arguments = () if name in ("sum", "prod") else (0,)
    with torch.autocast("cuda"):
        assert getattr(torch, name)(x, *arguments, dtype=HALF).dtype is HALF
        assert getattr(torch, name)(x.double(), *arguments).dtype is torch.float64


def test_integers_and_doubles_are_left_alone() -> None:
    with torch.autocast("cuda"):
        assert torch.sum(torch.ones(4, dtype=torch.int32, device="cuda")).dtype is torch.int64
        assert torch.mm(randn(4, 4).double(), randn(4, 4).double()).dtype is torch.float64
        assert torch.exp(randn(4).double()).dtype is torch.float64
        assert randn(4).double().norm().dtype is torch.float64


def test_binary_cross_entropy_is_banned_in_cudas_words() -> None:
    x = torch.rand(4, 4, device="cuda")
    for call in (F.binary_cross_entropy, torch.nn.BCELoss()):
        with torch.autocast("cuda"), pytest.raises(RuntimeError) as error:
            call(x, x)
        assert str(error.value) == (
            "torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are unsafe to autocast.\n"
            "Many models use a sigmoid layer right before the binary cross entropy layer.\n"
            "In this case, combine the two layers using torch.nn.functional.binary_cross_entropy_with_logits\n"
            "or torch.nn.BCEWithLogitsLoss.  binary_cross_entropy_with_logits and BCEWithLogits are\n"
            "safe to autocast."
        )
    assert math.isfinite(F.binary_cross_entropy(x, x).item())


TORCHS = AutocastTestLists("cpu")
SECTIONS: dict[str, tuple[Any, torch.dtype | None]] = {
    "torch_fp16": (torch, HALF),
    "torch_fp32": (torch, FLOAT),
    "torch_need_autocast_promote": (torch, FLOAT),
    "torch_expect_builtin_promote": (torch, None),
    "methods_expect_builtin_promote": (torch.Tensor, None),
    "nn_fp16": (torch._C._nn, HALF),
    "nn_fp32": (torch._C._nn, FLOAT),
    "linalg_fp16": (torch._C._linalg, HALF),
    "methods_fp16": (torch.Tensor, HALF),
    "methods_fp32": (torch.Tensor, FLOAT),
}
ENTRIES = [
    pytest.param(section, index, id=f"{section}-{entry[0]}-{index}")
    for section in SECTIONS
    if hasattr(TORCHS, section)
    for index, entry in enumerate(getattr(TORCHS, section))
    if not (section == "torch_fp16" and len(entry) == 3 and entry[2])  # what torch's own test skips
    and entry[0] != "__div__"  # no longer a method
    and not entry[0].startswith("cudnn_")  # not simulated
]


@pytest.fixture(scope="module")
def torchs(one_machine: None) -> AutocastTestLists:
    return AutocastTestLists("cuda")


@pytest.mark.parametrize(("section", "index"), ENTRIES)
@pytest.mark.filterwarnings("ignore:.*(deprecated|dim arg):UserWarning")
def test_torchs_own_cases(torchs: AutocastTestLists, section: str, index: int) -> None:
    """The inputs of test_autocast_* in torch's test/test_cuda.py."""
    entry = getattr(torchs, section)[index]
    owner, wanted = SECTIONS[section]
    keywords = entry[2] if len(entry) > 2 and isinstance(entry[2], dict) else {}
    if wanted is None:
        wanted = entry[2]
    with torch.autocast("cuda"):
        result = getattr(owner, entry[0])(*entry[1], **keywords)
    assert {r.dtype for r in floats(result)} <= {wanted}
    for one in result if isinstance(result, tuple) else [result]:
        assert not isinstance(one, torch.Tensor) or one.dtype is wanted
