"""torch.compile on a device: Dynamo captures, backends are called, and without Triton the graphs run op by op."""

from __future__ import annotations

import subprocess
import sys
import warnings
from importlib import import_module

import pytest
import torch

import fakegpu_lab as lab
from fakegpu_lab.driver.compile import inductor, triton_version


@pytest.fixture(autouse=True)
def fresh():
    yield
    torch._dynamo.reset()


def broken(x: torch.Tensor) -> torch.Tensor:
    x = x.sin()
    torch._dynamo.graph_break()
    return x + x.cos()


def test_a_backend_of_ones_own_gets_the_graph(machine):
    graphs = []

    def backend(graph, inputs):
        graphs.append([node.name for node in graph.graph.nodes if node.op != "placeholder"])
        return graph.forward

    x = torch.randn(2, 8, device="cuda")
    compiled = torch.compile(lambda x: (x * 2).relu(), backend=backend, fullgraph=True)
    assert torch.equal(compiled(x), (x * 2).relu())
    assert graphs == [["mul", "relu", "output"]]


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_it_trains(machine, backend):
    net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.GELU()).cuda()
    x = torch.ones(2, 4, device="cuda")
    net(x).sum().backward()
    expected = [p.grad.clone() for p in net.parameters()]
    net.zero_grad()
    with lab.record() as trace:
        torch.compile(net, backend=backend, fullgraph=True)(x).sum().backward()
    for p, grad in zip(net.parameters(), expected, strict=True):
        torch.testing.assert_close(p.grad, grad)
    assert {"aten::addmm", "aten::linear"} & {kernel.name for kernel in trace.kernels}


def test_a_graph_break_makes_two_graphs_and_fullgraph_refuses_it(machine, capfd):
    x = torch.ones(2, device="cuda")
    explained = torch._dynamo.explain(broken)(x)
    assert (explained.graph_count, explained.graph_break_count) == (2, 1)
    assert explained.break_reasons[0].user_stack[-1].name == "broken"
    torch._dynamo.reset()
    with pytest.raises(torch._dynamo.exc.Unsupported, match="graph_break"):
        torch.compile(broken, backend="eager", fullgraph=True)(x)
    assert torch.equal(torch.compile(broken, backend="eager")(x), broken(x))
    assert capfd.readouterr().err == ""


def test_a_branch_on_a_value_breaks_the_graph(machine):
    def choose(x):
        return x + 1 if x.sum() > 0 else x - 1

    counter = import_module("torch._dynamo.testing").CompileCounter()
    x = torch.ones(2, device="cuda")
    compiled = torch.compile(choose, backend=counter)
    assert (compiled(x).tolist(), compiled(-x).tolist()) == ([2, 2], [-2, -2])
    assert counter.frame_count == 3


def test_a_new_shape_recompiles_once_then_it_is_dynamic(machine):
    counter = import_module("torch._dynamo.testing").CompileCounter()
    compiled = torch.compile(lambda x: x * x.shape[0], backend=counter)
    for rows in (2, 3, 4, 5):
        compiled(torch.ones(rows, 4, device="cuda"))
    assert counter.frame_count == 2
    torch._dynamo.reset()
    counter.clear()
    compiled = torch.compile(lambda x: x * x.shape[0], backend=counter)
    for rows in (2, 3):
        x = torch.ones(rows, 4, device="cuda")
        torch._dynamo.mark_dynamic(x, 0)
        assert compiled(x)[0, 0].item() == rows
    assert counter.frame_count == 1


def test_what_a_program_asks_the_compiler(machine):
    x = torch.ones(2, device="cuda")
    ask = torch.compile(lambda x: x + 1 if torch.compiler.is_compiling() else x - 1, backend="eager")
    assert ask(x).tolist() == [2, 2]
    torch._dynamo.reset()
    with torch.compiler.set_stance("force_eager"):
        assert ask(x).tolist() == [0, 0]
    assert torch.compile(torch.compiler.disable(broken), backend="eager")(x).tolist() == broken(x).tolist()


def test_functions_that_the_driver_replaced_break_no_graph(machine):
    def attend(x):
        torch.cuda.is_available()
        scale = torch.tensor(2.0, device="cuda").type(x.dtype)
        return torch.nn.functional.scaled_dot_product_attention(x, x, x) * scale

    x = torch.randn(1, 2, 4, 8, device="cuda")
    for backend in ("eager", "aot_eager"):
        torch.testing.assert_close(torch.compile(attend, backend=backend, fullgraph=True)(x), attend(x))


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_torch_s_transformers_are_one_graph(machine, device):
    layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).to(device)
    for mode in (layer.train(), layer.eval()):
        torch._dynamo.reset()
        assert torch._dynamo.explain(mode)(torch.randn(2, 3, 8, device=device)).graph_count == 1


def test_attention_with_a_mask_is_traced_under_autocast(machine):
    def attend(x, mask):
        with torch.autocast("cuda", torch.bfloat16):
            return torch.nn.functional.scaled_dot_product_attention(x @ x, x, x, attn_mask=mask)

    x, mask = torch.randn(2, 2, 8, 8, device="cuda"), torch.ones(2, 1, 8, 8, dtype=torch.bool, device="cuda").tril()
    compiled = torch.compile(attend, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(x, mask), attend(x, mask))


def test_a_mode_gets_methods_that_the_driver_replaced(machine):
    """FlexAttention's masks look up tensors under such a mode: `new_ones`, for one, is then called as a function."""
    flex = import_module("torch.nn.attention.flex_attention")
    places = torch.arange(128, device="cuda").repeat(2, 1)

    def mask(b, h, q, k):
        return (q >= k) & (places[b, q] >= k)

    def blocks():
        return flex.create_block_mask(mask, 2, None, 128, 128, device=places.device).to_dense()

    assert torch.equal(torch.compile(blocks, backend="aot_eager", fullgraph=True)(), blocks())


def test_an_optimizers_step_is_one_graph(machine):
    net = torch.nn.Linear(4, 4).cuda()
    net(torch.ones(2, 4, device="cuda")).sum().backward()
    before = [p.clone() for p in net.parameters()]
    counter = import_module("torch._dynamo.testing").CompileCounter()
    torch.compile(torch.optim.SGD(net.parameters(), lr=1.0).step, backend=counter)()
    assert counter.frame_count == 1
    for p, old in zip(net.parameters(), before, strict=True):
        assert torch.equal(p, old - p.grad)


def test_an_optimizer_of_ones_own_breaks_no_graph(machine):
    class Halving(torch.optim.Optimizer):
        def step(self, closure=None):
            for group in self.param_groups:
                for p in group["params"]:
                    p.mul_(0.5)

    weight = torch.nn.Parameter(torch.ones(2, device="cuda"), requires_grad=False)
    torch.compile(Halving([weight], {}).step, backend="eager", fullgraph=True)()
    assert weight.tolist() == [0.5, 0.5]


def test_streams_and_events_are_captured(machine):
    def overlap(x):
        event, stream = torch.cuda.Event(), torch.cuda.Stream()
        event.record()
        with torch.cuda.stream(stream):
            stream.wait_event(event)
            y = x * 2
        torch.cuda.current_stream().wait_stream(stream)
        return y + 1

    x = torch.ones(2, device="cuda")
    assert torch.compile(overlap, backend="eager", fullgraph=True)(x).tolist() == [3, 3]


def test_dropout_that_is_computed_again_draws_the_same_numbers(machine):
    """Its state is kept by higher-order operators that have kernels for CUDA alone."""

    def step(x):
        return torch.utils.checkpoint.checkpoint(lambda x: torch.dropout(x, 0.5, True) * x, x, use_reentrant=False)

    x = torch.ones(64, device="cuda", requires_grad=True)
    y = torch.compile(step, backend="aot_eager_decomp_partition", fullgraph=True)(x)
    y.sum().backward()
    assert {0, 2} == set(y.tolist())
    assert torch.equal(x.grad, 2 * y.detach())


def test_attention_of_any_length_is_one_graph(machine):
    q = torch.randn(2, 4, 8, 16, device="cuda", dtype=torch.float16)
    attend = torch.nn.functional.scaled_dot_product_attention
    compiled = torch.compile(lambda q: attend(q, q, q), backend="aot_eager", fullgraph=True, dynamic=True)
    torch.testing.assert_close(compiled(q), attend(q, q, q))


def test_the_default_device_is_that_of_captured_factories(machine):
    try:
        torch.set_default_device("cuda")
        compiled = torch.compile(lambda x: x + torch.zeros(2), backend="eager", fullgraph=True)
        assert compiled(torch.ones(2)).device == torch.device("cuda", 0)
    finally:
        torch.set_default_device(None)


def test_a_generator_breaks_the_graph_as_on_a_card_and_goes_on_drawing(machine):
    def noisy(x, generator):
        return x.sin() + torch.randn(4, device="cuda", generator=generator)

    x, generator = torch.ones(4, device="cuda"), torch.Generator("cuda").manual_seed(3)
    expected = [noisy(x, generator) for _ in range(2)]
    generator.manual_seed(3)
    compiled = torch.compile(noisy, backend="eager")
    assert all(torch.equal(compiled(x, generator), one) for one in expected)
    torch._dynamo.reset()
    with pytest.raises(torch._dynamo.exc.Unsupported, match="Failed to convert args/kwargs to proxy"):
        torch.compile(noisy, backend="eager", fullgraph=True)(x, generator)


def test_tensors_on_the_cpu_are_compiled_too(machine):
    counter = import_module("torch._dynamo.testing").CompileCounter()
    assert torch.compile(lambda x: x + 1, backend=counter)(torch.ones(2)).tolist() == [2, 2]
    assert counter.frame_count == 1


def test_without_triton_it_says_what_to_install_once(machine, monkeypatch, capfd):
    monkeypatch.setattr(triton_version, "missing", lambda: "Run: pip install something.")
    monkeypatch.setattr(inductor, "_said", set())
    x = torch.randn(4, device="cuda")
    for function in (lambda x: x.sin() + 1, lambda x: x.cos() + 1):
        with lab.record() as trace:
            result = torch.compile(function, fullgraph=True)(x)
        assert torch.equal(result, function(x))
        assert [kernel.name for kernel in trace.kernels][-1] == "aten::add"
    out, err = capfd.readouterr()
    assert (
        out == "fakegpu_lab: torch.compile does not fuse kernels here, but runs op by op. Run: pip install something.\n"
    )
    assert err == ""


@pytest.mark.parametrize(
    ("installed", "sentence"),
    [(None, "is not installed. Run: pip install 'triton>=3.9'"), ("3.6.0", "Triton 3.6.0 is too old"), ("3.9.0", None)],
)
def test_why_there_is_no_triton(monkeypatch, installed, sentence):
    def version(name):
        if installed is None:
            raise triton_version.metadata.PackageNotFoundError
        return installed

    monkeypatch.setattr(triton_version.metadata, "version", version)
    monkeypatch.setattr(triton_version.sys, "platform", "linux")
    found = triton_version.missing()
    assert found is None if sentence is None else sentence in found


def test_memory_that_a_compiled_region_lacks_is_missed_at_the_users_line(machine):
    def large(x):
        return x.expand(1 << 20, 1 << 20) + 1

    with pytest.raises(torch.cuda.OutOfMemoryError, match="CUDA out of memory") as raised:
        torch.compile(large, backend="aot_eager")(torch.ones(1, device="cuda"))
    assert any(entry.path.name == "test_compiling.py" for entry in raised.traceback)


def test_a_compiled_model_is_recorded_without_a_warning_of_the_recorders_hooks(machine) -> None:
    compiled = torch.compile(torch.nn.Linear(4, 4).cuda(), backend="eager")
    with lab.record() as trace, warnings.catch_warnings(record=True) as warned:
        compiled(torch.ones(2, 4, device="cuda"))
    assert trace.kernels
    assert warned == []
    with torch.nn.modules.module.register_module_forward_hook(lambda *_: None), lab.record():  # noqa: SIM117
        with pytest.warns(UserWarning, match="global hooks on modules"):
            compiled(torch.ones(2, 4, device="cuda"))


def test_what_is_compiled_in_a_recording_is_not_compiled_in_the_next_one(machine) -> None:
    counter = import_module("torch._dynamo.testing").CompileCounter()
    compiled = torch.compile(torch.nn.Linear(4, 4).cuda(), backend=counter)
    for _ in range(3):
        with lab.record():
            compiled(torch.ones(2, 4, device="cuda"))
    assert counter.frame_count == 1


ORDERS = """
import torch
{before}
import fakegpu_lab as lab
for card in ("a100", "t4"):
    lab.enable(card)
    x = torch.ones(2, device="cuda")
    assert torch.compile(lambda x: x.sin() + 1, backend="aot_eager", fullgraph=True)(x).is_cuda
    lab.disable()
print(torch.compile(lambda x: x + 1, backend="eager", fullgraph=True)(torch.ones(2)).tolist())
"""


@pytest.mark.long
@pytest.mark.parametrize("before", ["", "import torch._dynamo, torch._inductor.compile_fx"], ids=["after", "before"])
def test_dynamo_may_be_imported_before_or_after_a_machine_is_enabled(before):
    program = ORDERS.format(before=before)
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300, check=False)
    assert (ran.stdout, ran.stderr) == ("[2.0, 2.0]\n", "")


def test_strict_export_traces_with_dynamo(machine):
    class Sine(torch.nn.Module):
        def forward(self, x):
            return x.sin()

    x = torch.ones(2, device="cuda")
    for strict in (True, False):
        assert torch.equal(torch.export.export(Sine(), (x,), strict=strict).module()(x), x.sin())


def test_an_op_that_has_no_kernel_says_the_same_compiled(machine):
    def product(x):
        return (x + 1) @ x

    x = torch.ones(2, 2, dtype=torch.long, device="cuda")
    with pytest.raises(RuntimeError, match=r'"addmm_cuda" not implemented for \'Long\'') as raised:
        torch.compile(product, backend="aot_eager", fullgraph=True)(x)
    assert any(entry.path.name == "test_compiling.py" for entry in raised.traceback)
