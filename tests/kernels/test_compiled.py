"""`lab.compiled`: the kernels of compiled functions, beside the lines that they were made from."""

from __future__ import annotations

import linecache
import re

import pytest
import torch
from torch import nn

import fakegpu_lab as lab
from fakegpu_lab.driver.compile import triton_version

if triton_version.missing() is not None:
    pytest.skip(triton_version.missing() or "", allow_module_level=True)

pytestmark = pytest.mark.usefixtures("compiling")


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm = nn.Linear(64, 64), nn.LayerNorm(64)

    def forward(self, x):
        y = self.first(x)
        y = torch.relu(y)
        return self.norm(y) * 2


def of(function: object, *offsets: int) -> tuple[str, ...]:
    return tuple(f"{__file__}:{function.__code__.co_firstlineno + offset}" for offset in offsets)


def test_kernels_of_a_training_step_in_the_order_of_their_launches():
    """As a recording has them, with the lines; forward, then backward, and nothing that chose configurations."""
    net = Net().cuda()
    compiled = torch.compile(net)
    x = torch.randn(32, 64, device="cuda")
    result = compiled(x)
    forward = lab.compiled(compiled).kernels
    assert [(one.name, one.lines) for one in forward] == [
        ("aten::addmm", of(Net.forward, 1)),
        ("triton_per_fused_mul_native_layer_norm_relu_0", of(Net.forward, 2, 3)),
    ]
    addmm, fused = forward
    assert fused.ops == ("relu", "native_layer_norm", "mul")
    assert fused.code.startswith("@triton.jit\ndef triton_per_fused_mul_native_layer_norm_relu_0(")
    assert (addmm.code, addmm.read_bytes, addmm.written_bytes) == ("", None, None)
    assert addmm.call.startswith("extern_kernels.addmm(")
    result.sum().backward()
    found = lab.compiled(compiled)
    assert found.kernels[:2] == forward
    assert {one.backward for one in found.kernels[2:]} == {True}
    assert all(one.lines and set(one.lines) <= set(of(Net.forward, 1, 2, 3)) for one in found.kernels)
    with lab.record() as trace:
        compiled(x).sum().backward()
    recorded = {(one.name, one.nbytes, one.end_ns - one.start_ns) for one in trace.kernels}
    assert {(one.name, one.nbytes, one.ns) for one in found.kernels} <= recorded
    assert all(one.read_bytes + one.written_bytes == one.nbytes for one in found.kernels if one.code)
    (graph,) = found.graphs
    assert graph.kernels == found.kernels
    assert [re.findall(r"# AOT ID: \['\d+_(\w+)'\]", source) for source in graph.sources] == [["forward"], ["backward"]]


def halves(x):
    x = x.sin() + 1
    print("Python runs this.")
    return (x @ x).cos()


def test_both_sides_of_a_graph_break():
    compiled = torch.compile(halves)
    compiled(torch.randn(16, 16, device="cuda"))
    found = lab.compiled(compiled)
    assert [(one.graph, one.name, one.lines) for one in found.kernels] == [
        (1, "triton_poi_fused_add_sin_0", of(halves, 1)),
        (2, "aten::mm", of(halves, 3)),
        (2, "triton_poi_fused_cos_0", of(halves, 3)),
    ]
    assert [one.line for one in found.breaks] == list(of(halves, 2))


def test_what_is_shown():
    compiled = torch.compile(halves)
    compiled(torch.randn(16, 16, device="cuda"))
    found = lab.compiled(compiled)
    text, page = str(found), found._repr_html_()
    assert "torch.compile made of halves: 2 graphs, 1 graph break, 0 recompilations, 3 kernels, " in text
    assert found.table.rows[0][1:2] == ["triton_poi_fused_add_sin_0"]
    assert f"test_compiled.py:{of(halves, 1)[0].rpartition(':')[2]}: x = x.sin() + 1\n    @triton.jit\n" in text
    assert "The graph breaks at" in page
    assert page.count("<details") == 2
    assert "x = x.sin() + 1" in page
    assert "@triton.jit" in page


def moved(x):
    y = x.exp() * 3
    return y.tanh()


def test_lines_are_the_programs_also_if_the_code_comes_from_the_cache():
    """The same function a hundred lines below: Inductor takes its code from its cache."""
    x = torch.randn(16, device="cuda")
    torch.compile(moved)(x)
    (before,) = lab.compiled(moved).kernels
    assert before.lines == of(moved, 1, 2)
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    program = "\n" * 100 + "def moved(x):\n    y = x.exp() * 3\n    return y.tanh()\n"
    linecache.cache["elsewhere.py"] = (len(program), None, program.splitlines(True), "elsewhere.py")
    names: dict[str, object] = {}
    exec(compile(program, "elsewhere.py", "exec"), names)
    compiled = torch.compile(names["moved"])
    compiled(x)
    assert torch._dynamo.utils.counters["aot_autograd"]["autograd_cache_hit"] == 1
    (after,) = lab.compiled(compiled).kernels
    assert after.lines == ("elsewhere.py:102", "elsewhere.py:103")
    assert (after.code, after.ns) == (before.code, before.ns)


def test_a_cuda_graph_and_an_optimizer():
    compiled = torch.compile(lambda x: (x @ x + 1).sin() @ x, mode="reduce-overhead")
    for _ in range(3):
        compiled(torch.ones(16, 16, device="cuda"))
    assert [one.name for one in lab.compiled(compiled).kernels] == [
        "aten::mm",
        "triton_poi_fused_add_sin_0",
        "aten::mm",
    ]
    layer = nn.Linear(4, 4).cuda()
    layer(torch.ones(1, 4, device="cuda")).sum().backward()
    step = torch.compile(torch.optim.SGD(layer.parameters(), lr=0.1, momentum=0.9).step)
    step()
    found = lab.compiled(step)
    assert found.breaks == ()
    assert [one.lines for one in found.kernels if one.name.startswith("triton_for_fused")] == [()], "it is torch's code"


def test_without_values():
    lab.enable("a100", compute="meta")
    compiled = torch.compile(lambda x: (x + 1).sin())
    compiled(torch.empty(1 << 20, device="cuda"))
    (kernel,) = lab.compiled(compiled).kernels
    assert (kernel.read_bytes, kernel.written_bytes) == (4 << 20, 4 << 20)


def test_a_graph_that_has_not_run_has_no_times():
    """The backward pass of a function that needs gradients for its outputs' use is compiled before it is called."""
    compiled = torch.compile(lambda x: (x * 2).sin())
    x = torch.ones(8, device="cuda", requires_grad=True)
    compiled(x)
    found = lab.compiled(compiled)
    assert [one.ns is None for one in found.kernels if one.backward] in ([], [True])
    compiled(x).sum().backward()
    assert [one.ns for one in lab.compiled(compiled).kernels if one.backward] != [None]


def test_advice_names_the_line_where_a_graph_breaks_and_what_the_host_waits_there():
    def program(x):
        x = (x + 1).sin()
        if x.sum() > 0:
            x = x * 2
        return x.cos()

    compiled = torch.compile(program)
    x = torch.ones(1 << 20, device="cuda")
    compiled(x)
    with lab.record() as trace:
        compiled(x)
        torch.cuda.synchronize()
    (found,) = [one for one in lab.advise(trace).findings if one.rule == "graph_break"]
    first = program.__code__.co_firstlineno
    assert found.line.endswith(f":{first + 2}")
    waits = [wait for wait in trace.waits if wait.line == found.line]
    assert found.cost_ns == sum(wait.end_ns - wait.start_ns for wait in waits) > 0
    with lab.record() as other:
        (x + 1).sin()
    assert not [one for one in lab.advise(other).findings if one.rule == "graph_break"]
