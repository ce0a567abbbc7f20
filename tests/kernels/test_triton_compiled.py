"""torch.compile with Triton: Inductor's kernels run on the simulated card."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import fakegpu_lab as lab
from fakegpu_lab.driver.compile import triton_version

if triton_version.missing() is not None:
    pytest.skip(triton_version.missing() or "", allow_module_level=True)

pytestmark = pytest.mark.usefixtures("compiling")


def recorded(call):
    call()
    with lab.record() as trace:
        result = call()
    return result, trace.kernels


def test_padding_is_measured_for_products_of_the_same_size():
    net = nn.Sequential(nn.Linear(10, 10), nn.ReLU(), nn.Linear(10, 10)).cuda()  # one of an input, one of a result
    x = torch.randn(10, 10, device="cuda")
    torch.testing.assert_close(torch.compile(net)(x), net(x))


def test_elementwise_ops_are_one_kernel_at_the_users_line():
    x = torch.randn(8, 8, device="cuda")
    compiled = torch.compile(lambda x: (x * 2 + 1).sin(), fullgraph=True)
    result, (kernel,) = recorded(lambda: compiled(x))
    assert (kernel.name, kernel.nbytes) == ("triton_poi_fused_add_mul_sin_0", 2 * 8 * 8 * 4)
    assert kernel.line.rpartition(":")[0] == __file__
    torch.testing.assert_close(result, (x * 2 + 1).sin())


def test_training_is_fused_and_its_gradients_are_eagers():
    net = nn.Sequential(nn.Linear(16, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 4)).cuda()
    x = torch.randn(4, 16, device="cuda")

    def step(model):
        net.zero_grad()
        model(x).square().mean().backward()
        return [p.grad.clone() for p in net.parameters()]

    eager, unfused = recorded(lambda: step(net))
    compiled = torch.compile(net, fullgraph=True)
    gradients, kernels = recorded(lambda: step(compiled))
    torch.testing.assert_close(gradients, eager)
    assert len(kernels) < len(unfused)
    assert any("native_layer_norm_backward" in kernel.name and "triton" in kernel.name for kernel in kernels)


def test_an_optimizers_step_is_a_kernel_for_all_parameters():
    net = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)).cuda()
    twin = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)).cuda()
    twin.load_state_dict(net.state_dict())
    optimizers = [torch.optim.AdamW(one.parameters(), lr=0.1) for one in (net, twin)]
    for one in (net, twin):
        one(torch.ones(2, 4, device="cuda")).sum().backward()
    compiled = torch.compile(optimizers[0].step)
    _, kernels = recorded(compiled)
    for _ in range(2):
        optimizers[1].step()
    torch.testing.assert_close(list(net.parameters()), list(twin.parameters()))
    assert [kernel.name for kernel in kernels if kernel.name.startswith("triton_for_fused")]


def test_reduce_overhead_replays_a_cuda_graph(monkeypatch):
    replay = torch.cuda.CUDAGraph.replay
    scale = torch.tensor(2.0, device="cuda")
    compiled = torch.compile(lambda x: (x * scale).sin().cumsum(0) @ x, mode="reduce-overhead")
    replayed = []
    monkeypatch.setattr(torch.cuda.CUDAGraph, "replay", lambda self: (replayed.append(self), replay(self)))
    for _ in range(4):
        x = torch.randn(8, 8, device="cuda")
        torch.testing.assert_close(compiled(x), (x * scale).sin().cumsum(0) @ x)
    assert len(replayed) == 3
    assert len(set(replayed)) == 1


def test_a_function_that_counts_its_calls_in_a_tensor_has_no_graph():
    calls, buffered = torch.zeros((), device="cuda"), nn.BatchNorm1d(4).cuda()
    counting = torch.compile(lambda x: x * calls.add_(1), mode="reduce-overhead")
    x = torch.ones(3, 4, device="cuda")
    assert [counting(x)[0, 0].item() for _ in range(4)] == [1, 2, 3, 4]
    assert calls.item() == 4
    counted = torch.compile(buffered, mode="reduce-overhead")  # a buffer has its place
    for _ in range(4):
        counted(x)
    assert buffered.num_batches_tracked.item() == 4


def test_a_new_shape_makes_a_kernel_for_all_shapes():
    compiled = torch.compile(lambda x: x.isnan().logical_not() * x + x.shape[0])
    for rows in (2, 3, 5):
        x = torch.randn(rows, 4, device="cuda")
        torch.testing.assert_close(compiled(x), x + rows)


def test_memory_that_a_compiled_region_lacks_is_missed_at_the_users_line():
    def large(x):
        return x.expand(1 << 20, 1 << 20) + 1

    with pytest.raises(torch.cuda.OutOfMemoryError, match=r"Tried to allocate 4096\.00 GiB"):
        torch.compile(large)(torch.ones(1, device="cuda"))


class Language(nn.Module):
    def __init__(self, drop=0.0):
        super().__init__()
        self.embedding, self.qkv, self.head = nn.Embedding(16, 8), nn.Linear(8, 24), nn.Linear(8, 16)
        self.norm, self.drop = nn.LayerNorm(8), nn.Dropout(drop)

    def forward(self, tokens, targets):
        x = self.norm(self.embedding(tokens))
        q, k, v = (z.unflatten(-1, (2, 4)).transpose(1, 2) for z in self.qkv(x).split(8, 2))
        x = x + nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        return nn.functional.cross_entropy(self.head(self.drop(x)).flatten(0, 1), targets.flatten())


def test_a_compiled_training_step_of_a_language_model_has_cudas_graph():
    """Its loss divides by a count that a formula in C++ moves "to the device"; its layers' gradients are products."""

    model = Language().cuda()
    tokens, targets = (torch.randint(16, (2, 4), device="cuda") for _ in range(2))

    def step(function):
        model.zero_grad()
        function(tokens, targets).backward()
        return [p.grad.clone() for p in model.parameters()]

    eager = step(model)
    compiled = torch.compile(model, fullgraph=True)
    gradients, kernels = recorded(lambda: step(compiled))
    torch.testing.assert_close(gradients, eager)
    assert not [kernel.name for kernel in kernels if "linear" in kernel.name and kernel.name.startswith("aten")]
    assert sum(kernel.name in ("aten::mm", "aten::addmm") for kernel in kernels) == 6


def test_an_output_of_an_earlier_step_cannot_be_used():
    """Torch's words, for outputs in the memory of a CUDA graph; and gradients are right where two passes wait."""
    weight = torch.randn(8, 8, device="cuda", requires_grad=True)
    first, second = (torch.randn(8, 8, device="cuda") for _ in range(2))
    compiled = torch.compile(lambda x: (x @ weight).sin(), mode="reduce-overhead")
    with torch.no_grad():
        for _ in range(3):
            compiled(first)
        old, new = compiled(first), compiled(second)
        with pytest.raises(RuntimeError, match="has been overwritten by a subsequent run"):
            old.sum()
        torch.testing.assert_close(new, (second @ weight).sin())
    (expected,) = torch.autograd.grad((first @ weight).sin().sum() + (second @ weight).sin().sum(), weight)
    for _ in range(4):
        weight.grad = None
        (compiled(first).sum() + compiled(second).sum()).backward()
        torch.testing.assert_close(weight.grad, expected)


def test_a_replay_copies_inputs_and_nothing_else(monkeypatch):
    net = nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8)).cuda()
    compiled = torch.compile(net, mode="reduce-overhead")
    capture, captured = torch.cuda.graph.__enter__, []
    monkeypatch.setattr(torch.cuda.graph, "__enter__", lambda self: (captured.append(self), capture(self)))
    inputs = [torch.full((4, 8), float(i), device="cuda") for i in range(5)]

    def step():
        net.zero_grad()
        compiled(inputs.pop()).square().sum().backward()

    for _ in range(3):
        step()
    _, kernels = recorded(step)
    assert len(captured) == 2
    assert [kernel.name for kernel in kernels if "copy" in kernel.name] == 2 * ["aten::_foreach_copy_"]


def test_a_size_is_an_input_of_a_graph_too():
    compiled = torch.compile(lambda x: x * x.shape[0], mode="reduce-overhead", dynamic=True)
    for rows in (300, 300, 300, 400, 400, 400):
        x = torch.randn(rows, 2, device="cuda")
        torch.testing.assert_close(compiled(x), x * rows)


def test_a_captured_kernel_keeps_no_memory():
    """What a graph only needs while it runs is free afterwards: 64 KiB between two kernels, and a library's product."""
    x, w = torch.ones(16, 16, device="cuda"), torch.ones(16, 1024, device="cuda")
    compiled = torch.compile(lambda x, w: ((x @ w).sin() @ w.t()).cos(), mode="reduce-overhead")
    used = []
    with torch.no_grad():
        for _ in range(4):
            result = compiled(x, w)
            used.append(torch.cuda.memory_allocated())
    copies = sum(one.nbytes for one in (x, w))
    assert used[1:] == 3 * used[1:2]
    assert used[1] - used[0] - copies == 8_519_680  # cuBLAS's workspace for the stream that captures
    torch.testing.assert_close(result, ((x @ w).sin() @ w.t()).cos())


def test_a_convolutions_result_has_the_layout_of_cudnns():
    """Channels last where the source or the weight is, also by the strides of a weight of 1×1."""
    net = nn.Sequential(nn.Conv2d(4, 8, 3, padding=1), nn.GroupNorm(2, 8), nn.SiLU(), nn.Conv2d(8, 4, 1)).cuda()
    net.to(memory_format=torch.channels_last)
    wide = nn.Conv2d(4, 8, 1).cuda().to(memory_format=torch.channels_last)
    y = torch.randn(2, 4, 8, 8, device="cuda")
    assert torch.compile(wide, fullgraph=True)(y).stride() == wide(y).stride() == (512, 1, 64, 8)
    x = torch.randn(2, 4, 8, 8, device="cuda", requires_grad=True)
    result = torch.compile(net, fullgraph=True)(x)
    assert result.stride() == net(x).stride()
    torch.testing.assert_close(result, net(x))
    torch.testing.assert_close(*(torch.autograd.grad(one.sum(), x)[0] for one in (result, net(x))))


def test_products_of_odd_sizes_are_measured():
    """Inductor pads them where that is quicker: it measures both, with dispatch to Python off."""
    layer = nn.Linear(10, 7).cuda()
    x = torch.randn(4, 10, device="cuda", requires_grad=True)
    torch.compile(layer)(x).sum().backward()
    torch.testing.assert_close(x.grad, layer.weight.sum(0).expand(4, 10))


def test_a_step_takes_the_same_time_and_memory_without_values():
    """Kernels are tried on memory of their own, so nothing depends on values: neither rows that are looked up, nor
    those that are added up."""

    def step_of(compute):
        lab.enable("a100", compute=compute)
        model = Language(drop=0.1).cuda()
        compiled = torch.compile(model, fullgraph=True)
        tokens, targets = (torch.randint(16, (2, 64), device="cuda") for _ in range(2))

        def step():
            model.zero_grad()
            compiled(tokens, targets).backward()

        for _ in range(2):
            step()
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        with lab.record() as trace:
            step()
        begin = trace.kernels[0].start_ns
        kernels = [(one.name, one.nbytes, one.start_ns - begin, one.end_ns - begin) for one in trace.kernels]
        return kernels, torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()

    without = step_of("meta")
    assert any("embedding_dense_backward" in name for name, *_ in without[0])
    assert without == step_of("real")


def test_what_was_compiled_once_is_not_compiled_or_tried_again(monkeypatch):
    def program(x):
        return torch.arange(24, device="cuda") * x.sin().sum(1, keepdim=True)  # a factory, which is a function of ours

    x = torch.ones(16, 24, device="cuda", requires_grad=True)

    def once():
        torch._dynamo.reset()
        torch._dynamo.utils.counters.clear()
        compiled = torch.compile(program)
        compiled(x).sum().backward()
        with lab.record() as trace:
            compiled(x).sum().backward()
        return [(kernel.name, kernel.nbytes, kernel.end_ns - kernel.start_ns) for kernel in trace.kernels]

    first = once()
    assert torch._dynamo.utils.counters["aot_autograd"]["autograd_cache_saved"] == 1
    run_all = "fakegpu_lab.kernels.triton_programs.launcher.run_all"
    monkeypatch.setattr(run_all, lambda *args: pytest.fail("tried again"))
    assert once() == first
    assert torch._dynamo.utils.counters["aot_autograd"]["autograd_cache_hit"] == 1


def test_compiling_that_takes_long_says_so(monkeypatch, capsys):
    from fakegpu_lab.driver.compile import progress

    monkeypatch.setattr(progress, "PATIENCE", 600.0)
    torch.compile(lambda x: x + 1)(torch.ones(4, device="cuda"))
    assert capsys.readouterr().out == ""
    monkeypatch.setattr(progress, "PATIENCE", 0.0)
    torch.compile(lambda x: (x + 2).cos())(torch.ones(4, device="cuda"))
    said, done = capsys.readouterr().out.splitlines()
    assert said == "torch.compile: compiling 2 operations …"
    assert done.startswith("torch.compile: 2 operations compiled in ")


def test_a_rounded_size_is_computed_in_a_kernel():
    compiled = torch.compile(lambda x: x + round(x.shape[0] / 2), fullgraph=True, dynamic=True)
    for rows in (3, 5):  # 1.5 and 2.5, halves to even
        assert compiled(torch.zeros(rows, device="cuda")).tolist() == rows * [2]


def test_max_autotune_compiles_only_the_template_that_it_chooses(monkeypatch):
    triton = pytest.importorskip("triton")
    compiled_kernels = []
    compile_kernel = triton.compiler.compiler.compile

    def counting(src, *args, **kwargs):
        compiled_kernels.append(src.fn.__name__)
        return compile_kernel(src, *args, **kwargs)

    monkeypatch.setattr("triton.compile", counting)
    net = nn.Sequential(nn.Linear(72, 72), nn.Linear(72, 72)).cuda().requires_grad_(False)
    x = torch.randn(32, 72, device="cuda")
    result, kernels = recorded(lambda: torch.compile(net, mode="max-autotune-no-cudagraphs")(x))
    torch.testing.assert_close(result, net(x))
    assert {kernel.name for kernel in kernels} == {"triton_tem_fused_addmm_t_0"}
    assert compiled_kernels == ["triton_tem_fused_addmm_t_0"]
    lab.disable()
    lab.enable("a100", compute="meta")
    torch._dynamo.reset()
    net = nn.Linear(72, 72).cuda().requires_grad_(False)
    x = torch.empty(32, 72, device="cuda")
    _, (kernel,) = recorded(lambda: torch.compile(net, mode="max-autotune-no-cudagraphs")(x))
    assert (kernel.name, kernel.access.flops) == ("triton_tem_fused_addmm_t_0", kernels[0].access.flops)


def test_flex_attention_is_a_kernel_forward_and_two_backward():
    flex = pytest.importorskip("torch.nn.attention.flex_attention")
    mask = flex.create_block_mask(lambda b, h, q, k: q >= k, None, None, 128, 128, device="cuda")
    q, k, v = (torch.randn(1, 1, 128, 16, device="cuda", requires_grad=True) for _ in range(3))
    compiled = torch.compile(flex.flex_attention, fullgraph=True)

    def attend(function):
        out = function()
        return out, torch.autograd.grad(out.square().sum(), (q, k, v))

    result, kernels = recorded(lambda: attend(lambda: compiled(q, k, v, block_mask=mask)))
    plain = attend(lambda: nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True))
    torch.testing.assert_close(result, plain)
    assert len([kernel for kernel in kernels if "flex_attention" in kernel.name]) == 3


def test_a_copy_that_does_not_wait_goes_to_pinned_memory():
    sent = torch.compile(lambda x: (2 * x).to("cpu", non_blocking=True))(torch.ones(8, device="cuda"))
    torch.cuda.synchronize()
    assert sent.is_pinned()
    assert sent.tolist() == [2] * 8
