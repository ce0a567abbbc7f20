"""What holds device memory, from when, and until when."""

from __future__ import annotations

import gc
import resource
import sys
import time

import pytest
import torch
from torch import nn

KIB, MIB, GIB = 2**10, 2**20, 2**30
CUBLAS = 8_519_680  # A100's workspace, kept from the first matrix product on


def allocated(device: int = 0) -> int:
    return torch.cuda.memory_allocated(device)


@pytest.mark.usefixtures("machine")
class TestLifetime:
    def test_a_tensor_takes_its_bytes_rounded_to_512(self) -> None:
        x = torch.ones(3, device="cuda")
        assert allocated() == 512
        y = torch.ones(129, device="cuda")
        assert allocated() == 512 + 1024
        del x, y
        assert allocated() == 0

    def test_views_share_and_the_last_one_frees(self) -> None:
        x = torch.ones(1024, device="cuda")
        view, detached, transposed = x[10:20], x.detach(), x.view(32, 32).t()
        assert allocated() == 4096
        del x, detached, transposed
        assert allocated() == 4096
        del view
        assert allocated() == 0

    def test_a_chain_of_results_holds_no_intermediates(self) -> None:
        x = torch.ones(MIB // 4, device="cuda")
        torch.cuda.reset_peak_memory_stats()
        y = ((x + 1) * 2).relu()
        assert allocated() == 2 * MIB
        assert torch.cuda.max_memory_allocated() == 3 * MIB
        del y

    def test_devices_are_apart_and_the_host_counts_nowhere(self) -> None:
        x = torch.ones(MIB // 4, device="cuda:1")
        torch.ones(MIB)
        assert (allocated(0), allocated(1)) == (0, MIB)
        y = x.to("cuda:0")
        assert (allocated(0), allocated(1)) == (MIB, MIB)
        y.cpu()
        assert (allocated(0), allocated(1)) == (MIB, MIB)

    def test_empty_tensors_take_nothing(self) -> None:
        x = torch.empty(0, device="cuda")
        assert allocated() == 0
        assert x.data_ptr() == 0

    def test_in_place_ops_take_nothing_and_resize_grows(self) -> None:
        x = torch.ones(128, device="cuda")
        x.add_(1).mul_(2).relu_()
        assert allocated() == 512
        x.resize_(256)
        assert allocated() == 1024
        assert x[:128].tolist() == [4.0] * 128
        x.resize_(16)
        assert allocated() == 1024

    def test_out_is_reused_and_grows_when_too_small(self) -> None:
        x, out = torch.ones(256, device="cuda"), torch.empty(0, device="cuda")
        torch.add(x, x, out=out)
        assert allocated() == 2 * 1024
        assert out.tolist() == [2.0] * 256
        torch.mul(x, x, out=out)
        assert allocated() == 2 * 1024

    def test_a_reference_cycle_frees_when_collected(self) -> None:
        class Node:
            pass

        node = Node()
        node.self, node.tensor = node, torch.ones(1024, device="cuda")  # type: ignore[attr-defined]
        del node
        gc.collect()
        assert allocated() == 0


@pytest.mark.usefixtures("machine")
class TestTraining:
    def test_what_backward_saved_counts_until_it_ran(self) -> None:
        x = torch.ones(MIB // 4, device="cuda", requires_grad=True)
        y = x.exp()  # saves its result
        z = y.sin()  # saves its input
        del y
        assert allocated() == 3 * MIB
        loss = z.sum()
        del z
        assert allocated() == 2 * MIB + 512
        loss.backward()
        assert x.grad is not None
        assert allocated() == 2 * MIB + 512  # x, x.grad, loss

    def test_a_gradient_is_taken_over_not_copied(self) -> None:
        x = torch.ones(MIB // 4, device="cuda", requires_grad=True)
        torch.cuda.reset_peak_memory_stats()
        (x * 2.0).sum().backward()
        # x, x*2 (freed before mul's backward needs it? it is not saved) and the gradient: never two gradients
        assert torch.cuda.max_memory_allocated() <= 3 * MIB + 1024
        assert allocated() == 2 * MIB

    def test_an_optimizer_takes_its_state(self) -> None:
        model = nn.Linear(512, 512, bias=False, device="cuda")
        optimizer = torch.optim.Adam(model.parameters())
        model(torch.ones(1, 512, device="cuda")).sum().backward()
        before = allocated()
        optimizer.step()
        assert allocated() == before + 2 * MIB  # exp_avg and exp_avg_sq; `step` is on the host
        optimizer.zero_grad()
        assert allocated() == before + MIB

    def test_cublas_takes_its_workspace_once_per_stream(self) -> None:
        a = torch.ones(4, 4, device="cuda")
        a + a
        assert allocated() == 512
        a @ a
        assert allocated() == 512 + CUBLAS
        torch.mm(a, a)
        nn.functional.linear(a, a)
        assert allocated() == 512 + CUBLAS
        with torch.cuda.stream(torch.cuda.Stream()):
            a @ a
        assert allocated() == 512 + 2 * CUBLAS

    def test_checkpointing_trades_memory(self) -> None:
        def peak(checkpointed: bool) -> int:
            layers = nn.Sequential(*(nn.Sequential(*(nn.Linear(256, 256), nn.Tanh()) * 4) for _ in range(4))).cuda()
            x = torch.ones(1024, 256, device="cuda", requires_grad=True)
            torch.cuda.reset_peak_memory_stats()
            base = allocated()
            for layer in layers:
                x = torch.utils.checkpoint.checkpoint(layer, x, use_reentrant=False) if checkpointed else layer(x)
            x.sum().backward()
            return torch.cuda.max_memory_allocated() - base

        torch.ones(1, 1, device="cuda") @ torch.ones(1, 1, device="cuda")  # cuBLAS's workspace is not the question
        assert peak(checkpointed=True) < 0.8 * peak(checkpointed=False)

    def test_attention_keeps_no_square_buffer(self) -> None:
        q = torch.ones(1, 4, 2048, 32, device="cuda", requires_grad=True)
        base = allocated()
        torch.cuda.reset_peak_memory_stats()
        out = nn.functional.scaled_dot_product_attention(q, q, q, is_causal=True)
        assert out.requires_grad
        assert torch.cuda.max_memory_allocated() - base < 4 * MIB  # scores would take 64 MiB


@pytest.mark.usefixtures("machine")
class TestOutOfMemory:
    @pytest.mark.parametrize(
        "ask",
        [
            lambda: torch.empty(25 * GIB, device="cuda"),
            lambda: torch.zeros(25 * GIB, device="cuda"),
            lambda: torch.ones(1, device="cuda").expand(25 * GIB).clone(),
            lambda: torch.ones(25 * GIB // 2**16, 1, device="cuda") + torch.ones(1, 2**16, device="cuda"),
            lambda: torch.ones(2**18, 1, device="cuda") @ torch.ones(1, 2**18, device="cuda"),
            lambda: torch.ones(2**10, device="cuda").repeat(2**25),
            lambda: torch.nn.functional.one_hot(torch.arange(2**18, device="cuda")),
            lambda: torch.randn(2**18, 2**18, device="cuda"),
            lambda: torch.outer(torch.ones(2**18, device="cuda"), torch.ones(2**18, device="cuda")),
            lambda: torch.cdist(torch.ones(2**17, 1, device="cuda"), torch.ones(2**17, 1, device="cuda")),
            lambda: torch.ones(1, 1, 64, 64, device="cuda").repeat_interleave(2**25, dim=0),
            lambda: nn.Linear(2**17, 2**17, device="cuda"),
            lambda: nn.functional.interpolate(torch.ones(1, 1, 8, 8, device="cuda"), size=(2**17, 2**17)),
            lambda: nn.functional.pad(torch.ones(8, device="cuda"), (0, 25 * GIB)),
            lambda: torch.ones(8, device="cuda").new_zeros(25 * GIB),
            lambda: torch.arange(25 * GIB, device="cuda"),
            lambda: torch.eye(2**18, device="cuda"),
        ],
    )
    @pytest.mark.skipif(sys.platform != "linux", reason="ru_maxrss is in KiB on Linux only")
    def test_is_found_before_the_host_computes(self, ask: object) -> None:
        ram = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        start = time.perf_counter()
        with pytest.raises(torch.OutOfMemoryError, match=r"CUDA out of memory\. Tried to allocate \d+"):
            ask()  # type: ignore[operator]
        assert time.perf_counter() - start < 5  # a real attempt would take minutes, or the machine's memory
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - ram < 300 * KIB

    def test_in_backward_is_an_ordinary_error(self) -> None:
        x = torch.ones(256 * MIB, device="cuda", requires_grad=True)
        y = x.view(-1)
        blocker = torch.empty(int(2.5 * GIB), dtype=torch.uint8, device="cuda")
        with pytest.raises(torch.OutOfMemoryError):
            (y * 1.0).sum().backward()
        del blocker
        (x[:8] * 2).sum()

    def test_leaves_the_machine_usable(self) -> None:
        keep = torch.ones(GIB // 4, device="cuda")
        with pytest.raises(torch.OutOfMemoryError):
            torch.empty(4 * GIB, device="cuda")
        assert (keep[:4] + 1).tolist() == [2.0] * 4
        del keep
        torch.empty(3 * GIB, dtype=torch.uint8, device="cuda")

    def test_in_a_hook_and_in_a_custom_function(self) -> None:
        class Fails(torch.autograd.Function):
            @staticmethod
            def forward(ctx: object, x: torch.Tensor) -> torch.Tensor:
                return x * 2

            @staticmethod
            def backward(ctx: object, grad: torch.Tensor) -> torch.Tensor:
                raise ValueError("mine")

        x = torch.ones(3, device="cuda", requires_grad=True)
        with pytest.raises(ValueError, match="mine"):
            Fails.apply(x).sum().backward()
        y = x * 2
        y.register_hook(lambda grad: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            (y * 3).sum().backward()
        (x * 2).sum().backward()
        assert x.grad.tolist() == [2.0] * 3


@pytest.mark.usefixtures("machine")
def test_inference_mode_takes_composites_apart_as_autograd_does() -> None:
    x = torch.arange(6.0, device="cuda").view(2, 3)
    with torch.inference_mode():
        copied = x.t().reshape(6)  # cannot be a view
        assert copied.data_ptr() != x.data_ptr()
        assert x.reshape(6).data_ptr() == x.data_ptr()
        assert copied.tolist() == [0.0, 3.0, 1.0, 4.0, 2.0, 5.0]
        assert torch.matmul(x, x.t()).tolist() == [[5.0, 14.0], [14.0, 50.0]]
        assert nn.functional.linear(x, x).shape == (2, 2)
        q = torch.ones(1, 2, 4, 8, device="cuda")
        assert nn.functional.scaled_dot_product_attention(q, q, q).shape == q.shape


@pytest.mark.usefixtures("machine")
class TestViews:
    @pytest.mark.parametrize(
        "parts",
        [
            lambda x: x.chunk(4),
            lambda x: x.split(256),
            lambda x: x.split([512, 512]),
            lambda x: x.unbind(),
            lambda x: list(x),
            lambda x: x.tensor_split(3),
            lambda x: torch.hsplit(x, 2),
        ],
    )
    def test_lists_of_views_take_nothing(self, parts: object) -> None:
        import fakegpu_lab as lab

        x = torch.arange(1024.0 * 4, device="cuda").view(1024, 4)
        before, kernels = allocated(), lab.snapshot().devices[0].counters.kernels
        pieces = parts(x)  # type: ignore[operator]
        assert allocated() == before
        assert lab.snapshot().devices[0].counters.kernels == kernels
        host = parts(x.cpu())  # type: ignore[operator]
        for piece, expected in zip(pieces, host, strict=True):
            assert piece.storage_offset() == expected.storage_offset()
            assert piece.data_ptr() == x.data_ptr() + 4 * expected.storage_offset()
        pieces[1].zero_()
        assert x.sum() < 1024 * 4 * (1024 * 4 - 1) / 2


@pytest.mark.usefixtures("machine")
class TestResizing:
    @pytest.mark.parametrize("elements", [2**31, 2**36, 2**40])
    def test_a_failed_resize_changes_nothing(self, elements: int) -> None:
        x = torch.ones(10, device="cuda")
        with pytest.raises(torch.OutOfMemoryError):
            x.resize_(elements)
        assert x.shape == (10,)
        assert x.sum().item() == 10.0
        assert allocated() >= 512

    def test_a_storage_without_bytes_can_be_touched(self) -> None:
        x = torch.ones(1000, device="cuda")
        x.untyped_storage().resize_(0)
        assert allocated() == 0
        assert x.untyped_storage().nbytes() == 0
        (x + 1).sum().item()  # on a card an error; here some number, and never a dead process
        x.untyped_storage().resize_(4000)
        assert allocated() == 4096
        x.fill_(2.0)
        assert x.sum().item() == 2000.0
