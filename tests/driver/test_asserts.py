"""Device-side asserts: reported when the host waits, in CUDA's words, and for good."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
import torch
import torch.nn.functional as F

import fakegpu_lab as lab
from fakegpu_lab.driver.base.cuda_messages import TORCH_VERSION

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from fakegpu_lab.hardware.machine import Machine

START = "CUDA error: device-side assert triggered\nSearch for `cudaErrorAssert' in https://docs.nvidia.com/cuda/"
ASYNC = "CUDA kernel errors might be asynchronously reported at some other API call"

WRONG_LABELS = "expected target dtype" if TORCH_VERSION >= (2, 13) else "expected scalar type Long"


def table() -> torch.Tensor:
    return torch.arange(20.0, device="cuda").reshape(4, 5)


def numbers(*values: Any) -> torch.Tensor:
    return torch.tensor(values, device="cuda")


def labels(wrong: int = 9) -> torch.Tensor:
    return numbers(0, 1, 2, wrong)


Case = tuple["Callable[[], torch.Tensor]", tuple[int, ...], str]

CASES: dict[str, Case] = {
    "embedding": (lambda: F.embedding(numbers(0, 4), table()), (2, 5), ("indexSelectSmallIndex: block: [0,0,0], "
                  "thread: [0,0,0] Assertion `srcIndex < srcSelectDimSize` failed.")),
    "embedding, negative": (lambda: F.embedding(numbers(-1), table()), (1, 5), "Indexing.cu:"),
    "embedding of many": (lambda: F.embedding(torch.arange(20, device="cuda"), torch.ones(19, 4, device="cuda")),
                          (20, 4), ("vectorized_gather_kernel: block: [19,0,0], thread: [0,0,0] Assertion `ind >=0 && "
                          'ind < ind_dim_size && "vectorized gather kernel index out of bounds"` failed.')),
    "embedding_bag": (lambda: F.embedding_bag(numbers(0, 7), table(), numbers(0)), (1, 5), "EmbeddingBag.cu:148"),
    "index_select": (lambda: table().index_select(1, numbers(5)), (4, 1), "`srcIndex < srcSelectDimSize` failed."),
    "x[i]": (lambda: table()[numbers(1, 4)], (2, 5), ("IndexKernel.cu:111: operator(): block: [0,0,0], thread: [5,0,0] "
             'Assertion `-sizes[i] <= index && index < sizes[i] && "index out of bounds"` failed.')),
    "x[:, i]": (lambda: table()[:, numbers(-6)], (4, 1), "IndexKernel.cu:111"),
    "x[i] of a host index": (lambda: table()[torch.tensor([1, 4])], (2, 5), "IndexKernel.cu:111"),
    "x[i] = 1": (lambda: table().index_put_((numbers(4),), numbers(1.0)), (4, 5), "IndexKernel.cu:111"),
    "gather": (lambda: table().gather(0, numbers([0, 4])), (1, 2), ("ScatterGatherKernel.cu:203: operator(): block: "
               "[0,0,0], thread: [1,0,0] Assertion `idx_dim >= 0 && idx_dim < index_size && ")),
    "gather of whole rows": (lambda: table().gather(0, numbers([7]).expand(3, 5)), (3, 5), "ScatterGatherKernel.cu:2"),
    "scatter_ of a value": (lambda: table().scatter_(1, numbers([5]), 1.0), (4, 5), "ScatterGatherKernel.cu:450"),
    "scatter_": (lambda: table().scatter_(1, numbers([-1]), table()), (4, 5), "ScatterGatherKernel.cu:203"),
    "scatter_add": (lambda: table().scatter_add(0, numbers([4]).expand(1, 5), table()), (4, 5), "ScatterGather"),
    "take": (lambda: table().take(numbers(20)), (1,), '"cuda_take_put_kernel() index out of bounds"` failed.'),
    "index_add": (lambda: table().index_add(0, numbers(4), torch.ones(1, 5, device="cuda")), (4, 5),
                  "indexFuncSmallIndex: block: [0,0,0], thread: [0,0,0] Assertion `dstIndex < dstAddDimSize` failed."),
    "index_copy": (lambda: table().index_copy(0, numbers(4), torch.ones(1, 5, device="cuda")), (4, 5),
                   '"index_copy_(): index out of bounds"` failed.'),
    "index_fill": (lambda: table().index_fill(1, numbers(9), 0.0), (4, 5), "IndexKernel.cu:154"),
    "nll_loss": (lambda: F.nll_loss(table(), labels()), (), ("nll_loss_forward_reduce_cuda_kernel_2d: block: [0,0,0], "
                 "thread: [3,0,0] Assertion `t >= 0 && t < n_classes` failed.")),
    "cross_entropy": (lambda: F.cross_entropy(table(), labels(-1)), (), "`t >= 0 && t < n_classes` failed."),
    "nll_loss, unreduced": (lambda: F.nll_loss(table(), labels(), reduction="none"), (4,),
                            "nll_loss_forward_no_reduce_cuda_kernel: block: [0,0,0], thread: [3,0,0]"),
    "nll_loss of one": (lambda: F.nll_loss(table()[0], torch.tensor(5, device="cuda")), (), "_reduce_cuda_kernel_1d"),
    "nll_loss2d": (lambda: F.cross_entropy(torch.ones(2, 3, 4, 4, device="cuda"),
                                           torch.full((2, 4, 4), 3, device="cuda")), (), "... and 24 more threads"),
    "one_hot": (lambda: F.one_hot(numbers(0, 5), 5), (2, 5), "ScatterGatherKernel.cu:450"),
    "binary_cross_entropy": (lambda: F.binary_cross_entropy(numbers(0.5, 1.5), numbers(0.0, 1.0)), (),
                             "Assertion `input_val >= zero && input_val <= one` failed."),
    "multi_margin_loss": (lambda: F.multi_margin_loss(table(), labels()), (), ("MultiMarginLoss_forward_kernel: "
                          "block: [3,0,0]")),
    "repeat_interleave": (lambda: torch.repeat_interleave(numbers(1, -1), output_size=2), (2,), ("compute_cuda_kernel: "
                          "block: [0,0,0], thread: [32,0,0] Assertion `repeat >= 0")),
    "max_unpool2d": (lambda: F.max_unpool2d(torch.ones(1, 1, 2, 2, device="cuda"),
                                            torch.full((1, 1, 2, 2), 99, device="cuda"), 2), (1, 1, 4, 4),
                     "Assertion `maxind >= 0 && maxind < outputImageSize` failed."),
    "masked_scatter": (lambda: table().masked_scatter(table() >= 0, numbers(1.0)), (4, 5), "totalElements <= srcSize"),
    "multinomial": (lambda: torch.multinomial(numbers(-1.0, 2.0), 1), (1,), ("_assert_async_cuda_kernel: block: "
                    "[0,0,0], thread: [0,0,0] Assertion `probability tensor contains either `inf`, `nan` or element")),
    "multinomial of zeros": (lambda: torch.multinomial(numbers(0.0, 0.0), 1), (1,), "(sum of probabilities <= 0)"),
    "multinomial, replacing": (lambda: torch.multinomial(numbers(0.5, -1.0), 9, replacement=True), (9,),
                               "thread: [1,0,0] Assertion `!(val < zero)` failed."),
    "bernoulli": (lambda: torch.bernoulli(numbers(0.5, 0.5, 0.5, 0.5, 2.0)), (5,), ("thread: [1,0,0] Assertion "
                  "`0 <= p1 && p1 <= 1` failed.")),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_kernel_that_asserts_is_reported_when_the_host_waits(
    machine: Machine, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    call, shape, line = CASES[name]
    result = call()
    assert result.shape == shape
    assert (result * 2).shape == shape  # the program goes on
    assert capsys.readouterr().err == ""
    with pytest.raises(torch.AcceleratorError) as raised:
        torch.cuda.synchronize()
    assert str(raised.value).startswith(START)
    assert ASYNC in str(raised.value)
    assert raised.value.error_code == 710  # type: ignore[attr-defined]
    err = capsys.readouterr().err
    assert line in err
    assert len(err.splitlines()) <= 9


WAITS: dict[str, Callable[[torch.Tensor], Any]] = {
    "item": lambda x: x.sum().item(),
    "print": repr,
    "cpu": torch.Tensor.cpu,
    "tolist": lambda x: x.tolist(),
    "numpy": lambda x: x.cpu().numpy(),
    "bool": lambda x: bool(x.sum() > 0),
    "to the device": lambda x: torch.ones(3).to("cuda"),
    "copy_": lambda x: torch.empty(x.shape).copy_(x),
    "nonzero": torch.Tensor.nonzero,
    "mask": lambda x: x[x > 0],
    "unique": torch.unique,
    "equal": lambda x: torch.equal(x, x),
    "stream": lambda x: torch.cuda.current_stream().synchronize(),
    "empty_cache": lambda x: torch.cuda.empty_cache(),
    "mem_get_info": lambda x: torch.cuda.mem_get_info(),
}


@pytest.mark.parametrize("wait", WAITS)
def test_every_way_of_waiting_reports_it(machine: Machine, wait: str) -> None:
    result = table()[numbers(4)]
    with pytest.raises(torch.AcceleratorError, match="device-side assert"):
        WAITS[wait](result)


def test_an_event_waits_too(machine: Machine) -> None:
    event = torch.cuda.Event()
    table()[numbers(4)]
    event.record()
    with pytest.raises(torch.AcceleratorError, match="device-side assert"):
        event.synchronize()


def test_what_does_not_wait_goes_on(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    result = table()[numbers(4)]
    result.add_(1)
    result.to("cpu", non_blocking=True)
    result.double()
    torch.empty(3, device="cuda")
    assert torch.cuda.memory_allocated() > 0
    assert capsys.readouterr().err == ""


LATER: dict[str, Callable[[torch.Tensor], Any]] = {
    "an op": lambda x: x + 1,
    "in place": lambda x: x.zero_(),
    "a product": lambda x: x @ x.T,
    "a layer": lambda x: F.linear(x, x),
    "a sum": lambda x: x.sum(),
    "a copy": lambda x: x.cpu(),
    "an allocation": lambda x: torch.empty(3, device="cuda"),
    "a factory": lambda x: torch.zeros(3, device="cuda"),
    "random numbers": lambda x: torch.randn(3, device="cuda"),
    "an upload": lambda x: torch.ones(3).cuda(),
    "item": lambda x: x[0, 0].item(),
    "print": repr,
    "synchronize": lambda x: torch.cuda.synchronize(),
    "an event": lambda x: torch.cuda.Event().record(),
    "empty_cache": lambda x: torch.cuda.empty_cache(),
}


@pytest.mark.parametrize("later", LATER)
def test_every_later_call_fails_the_same_way(machine: Machine, capsys: pytest.CaptureFixture[str], later: str) -> None:
    x = table()
    x[numbers(4)]
    with pytest.raises(torch.AcceleratorError) as first:
        torch.cuda.synchronize()
    capsys.readouterr()
    for _ in range(2):
        with pytest.raises(torch.AcceleratorError) as second:
            LATER[later](x)
        assert str(second.value) == str(first.value)
    assert capsys.readouterr().err == ""  # the kernel speaks once


def test_what_asks_nothing_of_the_device_still_works(machine: Machine) -> None:
    x = table()
    x[numbers(4)]
    with pytest.raises(torch.AcceleratorError):
        x.tolist()
    assert x.view(20)[3:].shape == (17,)
    assert x.device == torch.device("cuda:0")
    allocated = torch.cuda.memory_allocated()
    assert allocated > 0
    del x
    assert torch.cuda.memory_allocated() < allocated


def test_another_device_goes_on(machine: Machine) -> None:
    other = torch.ones(3, device="cuda:1")
    table()[numbers(4)]
    with pytest.raises(torch.AcceleratorError):
        torch.cuda.synchronize()
    assert (other + 1).tolist() == [2, 2, 2]
    torch.cuda.synchronize(1)
    with pytest.raises(torch.AcceleratorError):
        other.to("cuda:0")


def test_reset_cures_it(machine: Machine) -> None:
    x = table()
    x[numbers(4)]
    with pytest.raises(torch.AcceleratorError):
        x.cpu()
    lab.reset()
    assert torch.cuda.memory_allocated() == 0
    assert table()[numbers(3)].tolist() == [[15, 16, 17, 18, 19]]
    with pytest.raises(RuntimeError, match="which is gone: it was reset"):
        x + 1
    torch.cuda.synchronize()


def test_a_reset_before_anybody_waited_forgets_it(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    table()[numbers(4)]
    lab.reset()
    torch.cuda.synchronize()
    assert capsys.readouterr().err == ""


def test_the_note_names_the_cure_and_leaves_the_message_alone(machine: Machine) -> None:
    table()[numbers(4)]
    with pytest.raises(torch.AcceleratorError) as raised:
        torch.cuda.synchronize()
    assert "fakegpu" not in str(raised.value)
    if sys.version_info >= (3, 11):
        assert "%fakegpu reset" in raised.value.__notes__[0]


def test_training_goes_on_until_the_loss_is_read(machine: Machine) -> None:
    model = torch.nn.Sequential(torch.nn.Embedding(4, 8), torch.nn.Linear(8, 4)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    words, target = numbers(1, 4), numbers(0, 1)
    loss = F.cross_entropy(model(words), target)
    loss.backward()
    optimizer.step()
    with pytest.raises(torch.AcceleratorError, match="device-side assert"):
        loss.item()


class _Backward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        return grad.index_select(0, numbers(0, 1, 2, 9))


def test_an_assert_in_backward(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    x = table().requires_grad_()
    _Backward.apply(x).sum().backward()  # type: ignore[no-untyped-call]
    assert x.grad is not None
    with pytest.raises(torch.AcceleratorError, match="device-side assert"):
        print(x.grad)
    assert "srcIndex < srcSelectDimSize" in capsys.readouterr().err


def test_blocking_launches_raise_at_the_launch(
    monkeypatch: pytest.MonkeyPatch, machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CUDA_LAUNCH_BLOCKING", "1")
    lab.reset()  # read when CUDA is initialised
    x, index = table(), numbers(4)
    monkeypatch.delenv("CUDA_LAUNCH_BLOCKING")
    with pytest.raises(torch.AcceleratorError) as raised:
        x[index]
    assert raised.value.__context__ is None or raised.value.__suppress_context__
    assert str(raised.value).startswith(START)
    assert ASYNC not in str(raised.value)
    assert "CUDA_LAUNCH_BLOCKING" not in str(raised.value)
    assert "IndexKernel.cu:111" in capsys.readouterr().err
    with pytest.raises(torch.AcceleratorError):
        x + 1
    lab.reset()
    x = table()[numbers(4)]  # not blocking any more
    with pytest.raises(torch.AcceleratorError):
        x.cpu()


def test_a_script_shows_the_kernels_line_and_the_launch(tmp_path: Path) -> None:
    script = tmp_path / "wrong.py"
    script.write_text(
        "import torch\n"
        "x = torch.ones(4, 5, device='cuda')\n"
        "y = x[torch.tensor([7], device='cuda')]\n"
        "print('launched')\n"
        "print(y.sum().item())\n"
    )
    for blocking, line, said in (("1", 3, ""), ("0", 5, "launched\n")):
        ran = subprocess.run(
            [sys.executable, "-m", "fakegpu_lab", "run", "-q", "-d", "t4", str(script)],
            env=os.environ | {"CUDA_LAUNCH_BLOCKING": blocking},
            capture_output=True, text=True, check=False, timeout=120,
        )  # fmt: skip
        assert ran.returncode == 1
        assert ran.stdout.startswith(said)
        kernel, traceback = ran.stderr.split("Traceback", 1)
        assert "IndexKernel.cu:111: operator(): block: [0,0,0], thread: [0,0,0]" in kernel
        assert f'wrong.py", line {line}' in traceback
        assert "torch.AcceleratorError: CUDA error: device-side assert triggered" in traceback
        assert "IndexError" not in traceback


HOST_ERRORS: dict[str, tuple[Callable[[], Any], str]] = {
    "a Python index": (lambda: table()[9], "index 9 is out of bounds for dimension 0 with size 4"),
    "a 0-dim index": (lambda: table()[torch.tensor(9, device="cuda")], "index 9 is out of bounds for dimension 0"),
    "a mask's shape": (lambda: table()[numbers(True, False)], "The shape of the mask"),
    "an index into nothing": (lambda: table()[:0][numbers(0)], "^index is out of bounds for dimension with size 0$"),
    "a column of nothing": (lambda: table()[:, :0][:, numbers(0)],
                            "^index is out of bounds for dimension with size 0$"),
    "writing into nothing": (lambda: table()[:0].index_put_((numbers(0),), table()[:1]),
                             "^index is out of bounds for dimension with size 0$"),
    "accumulating into nothing": (lambda: table()[:0].index_put_((numbers(0),), table()[:1], accumulate=True),
                                  "^index 0 is out of bounds for dimension 0 with size 0$"),
    "negative repeats": (lambda: table().repeat_interleave(numbers(1, 2, -1, 1), 0), "^repeats can not be negative$"),
    "accumulating": (lambda: table().index_put_((numbers(5, 7),), numbers(1.0), accumulate=True),
                     "index 7 is out of bounds for dimension 0 with size 4"),
    "a probability": (lambda: table().bernoulli_(2.0), "bernoulli_ expects p to be in"),
    "bincount": (lambda: torch.bincount(numbers(-1)), "bincount only supports 1-d non-negative"),
    "one_hot of no class": (lambda: F.one_hot(numbers(0), 0), "num_classes should be positive"),
    "a label's dtype": (lambda: F.nll_loss(table(), labels().float()), WRONG_LABELS),
    "a singular matrix": (lambda: torch.linalg.inv(torch.zeros(2, 2, device="cuda")), "linalg.inv: The diagonal"),
    "not positive": (lambda: torch.linalg.cholesky(-torch.eye(2, device="cuda")), "not positive-definite"),
    "a negative deviation": (lambda: torch.normal(0.0, numbers(-1.0)), "normal expects all elements of std >= 0.0"),
    "many to assert": (lambda: torch._assert_async(numbers(0, 0)), "Boolean value of Tensor with more than one"),
}  # fmt: skip


@pytest.mark.parametrize("name", HOST_ERRORS)
def test_what_the_host_checks_poisons_nothing(machine: Machine, name: str) -> None:
    call, words = HOST_ERRORS[name]
    with pytest.raises((IndexError, RuntimeError), match=words) as raised:
        call()
    assert not isinstance(raised.value, torch.AcceleratorError)
    torch.cuda.synchronize()


def test_assert_async_says_its_message(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    torch._assert_async(torch.tensor(1, device="cuda"), "fine")
    torch.cuda.synchronize()
    torch._assert_async(torch.tensor(0, device="cuda"), "the mask is empty")
    with pytest.raises(torch.AcceleratorError):
        torch.cuda.synchronize()
    assert "thread: [0,0,0] Assertion `the mask is empty` failed." in capsys.readouterr().err


def test_one_hot_agrees_with_the_cpu(machine: Machine) -> None:
    classes = torch.tensor([[0, 2], [1, 0]])
    for count in (-1, 3, 7):
        assert torch.equal(F.one_hot(classes.cuda(), count).cpu(), F.one_hot(classes, count))
    assert F.one_hot(classes[:0].cuda(), 3).shape == (0, 2, 3)


def test_an_integer_division_by_zero_is_refused(machine: Machine) -> None:
    for call in (lambda x: x // 0, lambda x: x % 0, lambda x: torch.div(x, numbers(2, 0), rounding_mode="trunc")):
        with pytest.raises(lab.FakeGpuError, match="division of integers by zero is not simulated"):
            call(numbers(7, -7))
    assert (numbers(7.0) // 0).tolist() == [float("inf")]


def test_a_float_out_of_range_becomes_the_nearest_integer(machine: Machine) -> None:
    x = numbers(float("nan"), float("inf"), -float("inf"), 3e9, -2.7)
    least, most = -(2**31), 2**31 - 1
    assert x.int().tolist() == [0, most, least, most, -2]
    assert x.double().int().tolist() == [least, most, least, most, -2]
    assert x.long().tolist() == [-(2**63), 2**63 - 1, -(2**63), 3_000_000_000, -2]
    assert torch.zeros(5, dtype=torch.int32, device="cuda").copy_(x).tolist() == [0, most, least, most, -2]


def test_without_values_there_is_nothing_to_assert() -> None:
    lab.enable("a100", compute="meta")
    try:
        table()[numbers(9)]
        table().gather(0, numbers([9]).expand(2, 5))
        torch.cuda.synchronize()
    finally:
        lab.disable()
