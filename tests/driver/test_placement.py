"""Tensors on different devices: every op says what CUDA says, or works and gives the CPU's numbers.

And dtypes that CUDA's kernels do not take. The cases are in placement_cases.txt and dtype_cases.txt.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn

import fakegpu_lab as lab
from fakegpu_lab.driver.base.cuda_messages import TORCH_VERSION
from tests.driver.placement_table import Case, Verdict, read, run

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fakegpu_lab.hardware.machine import Machine

HERE = "cuda:0"
PLACEMENT = read("placement_cases.txt")
TWO_CARDS = [case for case in PLACEMENT if case.has_second_device]
DTYPES = read("dtype_cases.txt")


@pytest.fixture(scope="class")
def cards() -> Iterator[None]:
    """One machine for a whole table: no case leaves anything behind."""
    lab.enable("a100:2")
    yield
    lab.disable()


def outcome(expression: str, there: str) -> tuple[str, Any]:
    """The error of an expression as ``Type: text``, or ``""``; and its value and tensors."""
    try:
        return "", run(expression, HERE, there)
    except Exception as error:
        return f"{type(error).__name__}: {error}", None


def check(case: Case, verdict: Verdict, there: str) -> None:
    if "cosine_similarity" in case.expression and TORCH_VERSION < (2, 13):
        pytest.skip("the order of its ops, of which one raises, is newer")
    error, results = outcome(case.expression, there)
    expected = "" if verdict.error is None else f"{verdict.error}: {verdict.text}"
    assert error == expected.replace("{here}", HERE).replace("{there}", there)
    if not error:
        value, found = results
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            on_cpu, found_on_cpu = run(case.expression, "cpu", "cpu")
        if isinstance(value, torch.Tensor):
            assert str(value.device) == verdict.device.replace("{here}", HERE).replace("{there}", there)
        same(value, on_cpu)
        same(found, found_on_cpu)


def same(ours: Any, theirs: Any) -> None:
    """Equal values, wherever they are."""
    if isinstance(theirs, torch.Tensor):
        torch.testing.assert_close(ours.cpu(), theirs, equal_nan=True)
    elif isinstance(theirs, dict):
        for name, value in theirs.items():
            same(ours[name], value)
    elif isinstance(theirs, (list, tuple)):
        assert len(ours) == len(theirs)
        for left, right in zip(ours, theirs, strict=True):
            same(left, right)
    elif isinstance(theirs, (bool, int, float)):
        assert ours == theirs


@pytest.mark.filterwarnings("ignore")
@pytest.mark.usefixtures("cards")
class TestTable:
    @pytest.mark.parametrize("case", PLACEMENT, ids=[case.expression for case in PLACEMENT])
    def test_cpu_and_cuda(self, case: Case) -> None:
        check(case, case.cpu, "cpu")

    @pytest.mark.parametrize("case", TWO_CARDS, ids=[case.expression for case in TWO_CARDS])
    def test_two_cards(self, case: Case) -> None:
        check(case, case.cuda, "cuda:1")

    @pytest.mark.parametrize("case", DTYPES, ids=[case.expression for case in DTYPES])
    def test_dtypes(self, case: Case) -> None:
        check(case, case.cpu, HERE)


class TestOtherSentences:
    """Public messages (PyTorch's issues and forum) of what the driver stub cannot run: cuDNN's recurrent layers."""

    @pytest.mark.parametrize("cell", [nn.LSTM, nn.GRU, nn.RNN])
    def test_a_recurrent_layer_elsewhere(self, machine: Machine, cell: type[nn.Module]) -> None:
        layer = cell(8, 5)
        with pytest.raises(RuntimeError) as error:
            layer(torch.ones(2, 3, 8, device="cuda"))
        assert str(error.value) == (
            "Input and parameter tensors are not at the same device, found input tensor at cuda:0 and parameter "
            "tensor at cpu"
        )

    def test_a_hidden_state_elsewhere(self, machine: Machine) -> None:
        layer = nn.GRU(8, 5).cuda()
        with pytest.raises(RuntimeError) as error:
            layer(torch.ones(2, 3, 8, device="cuda"), torch.zeros(1, 3, 5))
        assert str(error.value) == (
            "Input and hidden tensors are not at the same device, found input tensor at cuda:0 and hidden tensor at cpu"
        )

    def test_hidden_states_are_looked_at_before_weights(self, machine: Machine) -> None:
        """RNN.h, check_attributes; the cell state is a hidden tensor too."""
        h, c = torch.zeros(1, 3, 5, device="cuda"), torch.zeros(1, 3, 5, device="cuda:1")
        for layer in (nn.LSTM(8, 5), nn.LSTM(8, 5).cuda()):
            with pytest.raises(RuntimeError) as error:
                layer(torch.ones(2, 3, 8, device="cuda"), (h, c))
            assert str(error.value) == (
                "Input and hidden tensors are not at the same device, found input tensor at cuda:0 and hidden tensor "
                "at cuda:1"
            )

    def test_a_recurrent_layer_of_another_dtype(self, machine: Machine) -> None:
        layer, h = nn.GRU(8, 5).cuda(), torch.zeros(1, 3, 5, device="cuda")
        source = torch.ones(2, 3, 8, device="cuda").half()
        flat = [weight.detach() for weight in layer.parameters()]
        for name, hidden in (("hidden", h), ("parameter", h.half())):
            with pytest.raises(RuntimeError) as error:
                torch.gru(source, hidden, flat, True, 1, 0.0, False, False, False)
            assert str(error.value) == (
                f"Input and {name} tensors are not the same dtype, found input tensor with Half and {name} tensor "
                "with Float"
            )

    @pytest.mark.filterwarnings("error")  # cuDNN's warning of scattered weights comes after this check
    def test_a_recurrent_layer_with_one_weight_left_behind(self, machine: Machine) -> None:
        layer = nn.GRU(8, 5).cuda()
        source, h = torch.ones(2, 3, 8, device="cuda"), torch.zeros(1, 3, 5, device="cuda")
        weights = [weight.detach() for weight in layer.parameters()]
        weights[-1] = weights[-1].cpu()
        with pytest.raises(RuntimeError, match="parameter tensor at cpu"):
            torch.gru(source, h, weights, True, 1, 0.0, False, False, False)


class TestNothingHappensOnFailure:
    def test_a_refused_op_writes_nothing_and_takes_no_memory(self, machine: Machine) -> None:
        a, b = torch.ones(1000, device="cuda"), torch.ones(1000)
        before = torch.cuda.memory_allocated()
        kernels = machine.devices[0].ledger.kernels
        for refused in (lambda: a + b, lambda: a.add_(b), lambda: b.add_(a), lambda: torch.cat([a, b])):
            with pytest.raises(RuntimeError, match="same device"):
                refused()
        assert torch.cuda.memory_allocated() == before
        assert machine.devices[0].ledger.kernels == kernels
        assert torch.equal(a.cpu(), b)

    def test_a_scalar_from_the_host_is_no_transfer(self, machine: Machine) -> None:
        a = torch.ones(3, device="cuda")
        before = machine.devices[0].ledger.h2d_count
        a * torch.tensor(2.0)
        assert machine.devices[0].ledger.h2d_count == before


class TestNames:
    """C++ knows the devices under another name, which nobody may see."""

    @pytest.mark.parametrize(
        "expression",
        [
            "torch.inner(a, B)",
            "a.inner(B)",
            "a.take_along_dim(Q, 1)",
            "torch.linalg.multi_dot([a, M, m.T])",
            "torch.gradient(a, spacing=(V, U))",
            "torch.stft(v.repeat(10), 8, window=V.repeat(2), return_complex=True)",
            "torch.tensordot(a, m, 1, out=O)",
            "x = nn.Parameter(a); x.register_hook(lambda g: B); (x * 2).sum().backward()",
            "x = nn.Parameter(a); x.grad = B",
        ],
    )
    def test_the_cpp_name_stays_inside(self, machine: Machine, expression: str) -> None:
        error, _ = outcome(expression, "cpu")
        assert "fakegpu" not in error
        assert "cuda" in error
