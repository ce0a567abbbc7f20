"""`lab.compiled`: graphs, breaks and recompilations of a compiled function; what needs no Triton."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
from torch._inductor import config

import fakegpu_lab as lab
from fakegpu_lab.driver.compile import compilations, triton_version
from fakegpu_lab.driver.compile.compilations import Compilation, Frame, Part, matched
from fakegpu_lab.hardware.time.records import Kernel


@pytest.fixture(autouse=True)
def fresh():
    yield
    torch._dynamo.reset()


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(2, 2)

    def forward(self, x):
        return self.linear(x).relu()


def line(function: object, offset: int) -> str:
    return f"{__file__}:{function.__code__.co_firstlineno + offset}"


def broken(x: torch.Tensor) -> torch.Tensor:
    x = x.sin()
    torch._dynamo.graph_break()
    return x + x.cos()


def helped(x: torch.Tensor) -> torch.Tensor:
    return broken(x) * 2


def in_a_loop(x: torch.Tensor) -> torch.Tensor:
    for _ in range(2):
        x = x + 1
        torch._dynamo.graph_break()
    return x


def test_a_graph_break_and_its_graphs(machine):
    compiled = torch.compile(broken, backend="eager")
    compiled(torch.ones(2, device="cuda"))
    found = lab.compiled(compiled)
    assert found.name == "broken"
    assert [(one.number, one.name, one.line, one.operations) for one in found.graphs] == [
        (1, "broken", line(broken, 0), 1),
        (2, "broken", line(broken, 2), 2),
    ]
    (only,) = found.breaks
    assert only.line == line(broken, 2)
    assert only.reason.startswith("Call to `torch._dynamo.graph_break()`: User-inserted graph break.")
    assert (found.kernels, found.recompilations, found.eager) == ((), (), ())
    assert {one.note for one in found.graphs} == {
        "The backend 'eager' runs its graph without code that Inductor has generated."
    }
    assert "torch.compile made of broken: 2 graphs, 1 graph break, 0 recompilations." in str(found)
    assert "test_compilations.py:" in str(found)
    assert ": torch._dynamo.graph_break()\n" in str(found)


def test_a_break_in_a_function_that_is_called_belongs_to_the_caller(machine):
    compiled = torch.compile(helped, backend="eager")
    compiled(torch.ones(2, device="cuda"))
    found = lab.compiled(compiled)
    assert {one.line for one in found.breaks} >= {line(broken, 2)}
    assert {one.name for one in found.graphs} == {"broken", "helped"}


def test_a_break_in_a_loop_leaves_the_function_to_python(machine):
    compiled = torch.compile(in_a_loop, backend="eager")
    compiled(torch.ones(2, device="cuda"))
    found = lab.compiled(compiled)
    assert [one.line for one in found.breaks] == [line(in_a_loop, 3)]
    assert found.graphs == ()
    (sentence,) = found.eager
    assert sentence.startswith("in_a_loop (")
    assert sentence.endswith(") was not compiled, and runs op by op.")


def test_a_recompilation_says_which_guard_failed(machine):
    def scaled(x, factor):
        return x * factor

    compiled = torch.compile(scaled, backend="eager", dynamic=False)
    for factor in (2, 2, 3):
        compiled(torch.ones(2, device="cuda"), factor)
    found = lab.compiled(compiled)
    assert [one.recompiled for one in found.graphs] == ["", "factor == 2"]
    assert [one.number for one in found.recompilations] == [2]
    assert "because a guard failed:\n  factor == 2" in str(found)
    torch._dynamo.reset()
    compiled(torch.ones(2, device="cuda"), 4)
    assert len(lab.compiled(compiled).graphs) == 1


def test_too_many_recompilations_are_named(machine, caplog):
    compiled = torch.compile(lambda x, text: x + len(text), backend="eager", dynamic=False)
    with torch._dynamo.config.patch(recompile_limit=2):
        for text in ("a", "bc", "def"):
            compiled(torch.ones(2, device="cuda"), text)
    found = lab.compiled(compiled)
    assert len(found.graphs) == 2
    assert any("recompile limit exceeded" in sentence for sentence in found.eager)


@pytest.mark.parametrize("way", ["torch.compile", "compile", "forward"])
def test_modules_by_all_that_compiles_them(machine, way):
    net = Net().cuda()
    if way == "compile":
        net.compile(backend="eager")
    elif way == "forward":
        net.forward = torch.compile(net.forward, backend="eager")
    called = torch.compile(net, backend="eager") if way == "torch.compile" else net
    with pytest.raises(lab.FakeGpuError, match=r"^compiled\(\w+\): nothing has been compiled yet\."):
        lab.compiled(called)
    called(torch.ones(1, 2, device="cuda"))
    assert [(one.name, one.operations) for one in lab.compiled(called).graphs] == [("forward", 2)]


def test_another_module_of_the_same_class_shares_the_graph(machine):
    first, second = (torch.compile(torch.nn.Linear(2, 2).cuda(), backend="eager") for _ in range(2))
    for one in (first, second):
        one(torch.ones(1, 2, device="cuda"))
    assert len(lab.compiled(second).graphs) == 1


def test_what_was_given_to_torch_compile_will_do(machine):
    torch.compile(broken, backend="eager")(torch.ones(2, device="cuda"))
    assert len(lab.compiled(broken).graphs) == 2


def test_a_compiled_function_is_let_go(machine):
    net = torch.nn.Linear(2, 2).cuda()
    compiled = torch.compile(net, backend="eager")
    compiled(torch.ones(1, 2, device="cuda"))
    gone = weakref.ref(net)
    del net, compiled
    torch._dynamo.reset()
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize(
    ("wrong", "name"),
    [(len, "len"), (3, "3"), (None, "None"), (torch.nn.ReLU(), "ReLU"), (torch.nn.ReLU, "ReLU"), ([], "list")],
)
def test_what_is_not_compiled(machine, wrong, name):
    with pytest.raises(lab.FakeGpuError) as raised:
        lab.compiled(wrong)
    assert str(raised.value) == (
        f"compiled({name}): this is not a compiled function or module. Compile it with torch.compile, call the result "
        "once, and then pass it to compiled()."
    )


def test_a_function_that_must_not_be_compiled_is_not(machine):
    with pytest.raises(lab.FakeGpuError, match="this is not a compiled function"):
        lab.compiled(torch.compiler.disable(broken))


def test_without_a_machine():
    lab.disable()
    with pytest.raises(lab.FakeGpuError, match="No simulated GPU is enabled"):
        lab.compiled(broken)


def test_without_triton_a_graph_runs_op_by_op(machine, monkeypatch):
    monkeypatch.setattr(triton_version, "missing", lambda: "Run: pip install something.")
    compiled = torch.compile(lambda x: x + 1)
    compiled(torch.ones(2, device="cuda"))
    (graph,) = lab.compiled(compiled).graphs
    assert graph.note == "It runs op by op: Run: pip install something."
    assert "Graph 1: It runs op by op: Run: pip install something." in lab.compiled(compiled)._repr_html_()


def test_a_graph_on_the_cpu_has_no_kernels_on_a_card(machine):
    one = Compilation(broken.__code__, "0/0", operations=1, backend="inductor")
    one.parts.append(Part(False, "", {}, on_device=False))
    assert lab.Compiled("broken", [one], "A100").graphs[0].note == (
        "It runs on the CPU, so it launches no kernels on a card."
    )


SOURCE = """
# Topologically Sorted Source Nodes: [y], Original ATen: [aten.relu]
triton_poi_fused_relu_0 = async_compile.triton('triton_poi_fused_relu_0', '''
import triton

@triton.jit
def triton_poi_fused_relu_0(in_out_ptr0, xnumel, XBLOCK : tl.constexpr):
    other.run(in_out_ptr0)
''', device_str='cuda')

async_compile.wait(globals())

def call(args):
    buf0 = empty_strided_cuda((32, 64), (64, 1), torch.float32)
    # Topologically Sorted Source Nodes: [x], Original ATen: [aten.t, aten.addmm]
    # [Provenance debug handles] extern_kernels.addmm:1
    extern_kernels.addmm(primals_3, primals_1, out=buf0)
    # Topologically Sorted Source Nodes: [y], Original ATen: [aten.relu]
    # [Provenance debug handles] triton_poi_fused_relu_0:2
    raw_stream0 = get_raw_stream(0)
    triton_poi_fused_relu_0.run(buf0, 2048, stream=raw_stream0)
    # Topologically Sorted Source Nodes: [z], Original ATen: [aten.sdpa]
    # [Provenance debug handles] torch.ops.aten._sdpa.default:3
    buf1 = torch.ops.aten._sdpa.default(buf0, buf0)
"""


def test_the_calls_in_inductors_code():
    part = Part(False, SOURCE, {}, on_device=True)
    assert [(one.name, one.handle, one.ops, one.triton) for one in part.sites] == [
        ("extern_kernels.addmm", "extern_kernels.addmm:1", ("t", "addmm"), False),
        ("triton_poi_fused_relu_0", "triton_poi_fused_relu_0:2", ("relu",), True),
        ("torch.ops.aten._sdpa.default", "torch.ops.aten._sdpa.default:3", ("sdpa",), False),
    ]
    (code,) = part.kernels.values()
    assert code.splitlines()[:2] == [
        "@triton.jit",
        "def triton_poi_fused_relu_0(in_out_ptr0, xnumel, XBLOCK : tl.constexpr):",
    ]
    assert [(site.name, launch) for site, launch in matched(part)] == [(one.name, None) for one in part.sites]


def test_launches_find_their_calls():
    part = Part(False, SOURCE, {}, on_device=True)
    names = ["aten::addmm", "aten::fill_", "triton_poi_fused_relu_0", "aten::_sdpa"]
    part.launches = [Kernel(name, 0, 0, 0, 1) for name in names]
    assert [site.handle if site is not None else "" for site, _ in matched(part)] == [
        "extern_kernels.addmm:1",
        "",
        "triton_poi_fused_relu_0:2",
        "torch.ops.aten._sdpa.default:3",
    ]


def trace(file: str, number: int, function: str, text: str) -> str:
    return f'  File "{file}", line {number}, in {function}\n    {text}\n    ^^^^^\n'


def test_lines_of_a_cache_that_have_moved():
    """The file is another, a line was inserted; a text that occurs twice cannot be found, nor one that is gone."""
    one = Compilation(broken.__code__, "0/0")
    one.frames = [
        Frame("new.py", 11, "f", "x = x.sin()"),
        Frame("new.py", 12, "f", "x = x + 1"),
        Frame("new.py", 13, "f", "x = x + 1"),
    ]
    assert one.lines([trace("old.py", 1, "f", "x = x.sin()")]) == ("new.py:11",)
    assert one.lines([trace("new.py", 12, "f", "x = x + 1")]) == ("new.py:12",)
    assert one.lines([trace("old.py", 2, "f", "x = x + 1"), trace("old.py", 9, "f", "x = x.exp()")]) == ()
    assert one.lines([trace("new.py", 12, "f", "x = x + 1"), trace("old.py", 1, "f", "x = x.sin()")]) == (
        "new.py:11",
        "new.py:12",
    )


def test_the_innermost_line_is_the_programs():
    inside = trace(torch.nn.modules.linear.__file__, 134, "forward", "return F.linear(input)")
    found = compilations.innermost(trace("mine.py", 3, "torch_dynamo_resume_in_f_at_2", "y = layer(x)") + inside)
    assert found == Frame("mine.py", 3, "f", "y = layer(x)")
    assert compilations.innermost(inside) is None


def test_inductor_keeps_lines_only_while_a_machine_is_enabled(machine):
    assert config.trace.provenance_tracking_level == 2
    lab.disable()
    assert config.trace.provenance_tracking_level == 0
