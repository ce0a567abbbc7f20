"""Work for show: what a check counts although no result uses it, and what ranks pass on without a message."""

import ast

import pytest
import torch
import torch.distributed as dist

import fakegpu_lab as lab
from fakegpu_lab.course.checks.observe import Observation
from fakegpu_lab.course.flags.policy import Policy
from fakegpu_lab.course.flags.shared import Shared
from fakegpu_lab.course.grade.one_submission import _seen_by_check
from fakegpu_lab.course.grade.outcome import CheckOutcome
from fakegpu_lab.driver.recorder import recording, results
from fakegpu_lab.hardware.time.recorder import Recorder


@pytest.fixture(autouse=True)
def followed():
    kinds, follower = [*recording._recorder_kinds], [*recording._follower]
    results.follow()
    lab.enable("a100:2")
    yield
    lab.disable()
    recording._recorder_kinds[:], recording._follower[:] = kinds, follower
    recording._refresh()
    assert recording.new_recorder(0, 1).__class__ is Recorder


def names_of(trace):
    return [kernel.name.removeprefix("aten::") for kernel in trace.kernels]


def used_in(trace, *tensors):
    with results.only_used(tensors):
        return names_of(trace)


def test_a_kernel_whose_result_nothing_uses_is_left_out():
    a = torch.rand(8, 8, device="cuda") - 0.5
    with lab.record() as trace:
        kept = (a @ a).relu()
        torch.ones(8, 8, device="cuda").exp()
    assert names_of(trace) == ["mm", "relu", "fill_", "exp"]
    assert used_in(trace, kept) == ["mm", "relu"]
    assert names_of(trace) == ["mm", "relu", "fill_", "exp"]


@pytest.mark.parametrize(
    "combine",
    [
        lambda right, show: right + show * 0,
        lambda right, show: right + (show - show),
        lambda right, show: torch.where(right > -1, right, show),
        lambda right, show: right + show.sum() * 1e-30,
    ],
)
def test_what_changes_nothing_does_not_count_as_used(combine):
    a = torch.rand(8, 8, device="cuda") + 1
    with lab.record() as trace:
        kept = combine(a.exp(), (a @ a) * 1)
    assert "exp" in used_in(trace, kept)
    assert "mm" not in used_in(trace, kept)


@pytest.mark.parametrize(
    "idle",
    [
        lambda x: x * 1,
        lambda x: x / 1,
        lambda x: x + torch.zeros_like(x),
        lambda x: x - 0,
        lambda x: x.abs(),
        lambda x: x.clamp(min=0),
        lambda x: x.view(-1, 1).amax(dim=1).view(8, 8),
        lambda x: x.reshape(-1, 1).sort(dim=1).values.view(8, 8),
        lambda x: x.view(-1, 1).max(dim=1)[0].view(8, 8),
    ],
)
def test_work_that_changes_nothing_is_work_for_show(idle):
    """`(prices * 2).to("cuda") * 1` computed on the CPU, and "the arithmetic ran on the GPU" was met."""
    a = torch.rand(8, 8)
    with lab.record() as trace:
        kept = idle(a.to("cuda"))
    assert used_in(trace, kept) == []
    with results.only_used([kept]):
        assert [copy.kind for copy in trace.transfers] == ["h2d"], "the copy was needed"


def test_what_was_before_beside_a_part_that_an_op_leaves_as_it_is_stays_used():
    a = torch.rand(8, 8, device="cuda")
    with lab.record() as trace:
        kept = a @ a
        torch.mul(a[0], 1, out=kept[0])
    assert "mm" in used_in(trace, kept)


def test_what_the_host_reads_is_used():
    a = torch.rand(8, 8, device="cuda")
    with lab.record() as trace:
        (a @ a).sum().item()
        a.exp().cpu()
    assert used_in(trace) == ["mm", "sum", "exp"]


def test_a_training_step_is_used_to_its_last_kernel():
    model, x = torch.nn.Linear(4, 4).cuda(), torch.rand(3, 4).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    with lab.record() as trace:
        model(x).square().mean().backward()
        optimizer.step()
    assert used_in(trace, *model.parameters()) == names_of(trace)


def test_copies_and_messages_for_show_are_left_out_too():
    def program():
        dist.init_process_group("nccl")
        torch.cuda.set_device(dist.get_rank())
        mine = torch.ones(3).cuda() + dist.get_rank()
        dist.all_reduce(mine)
        dist.all_reduce(torch.rand(5).cuda())
        return mine

    with lab.record() as trace:
        sums = lab.run_ranks(program, 2)
    assert (len(trace.collectives), len(trace.transfers)) == (4, 4)
    with results.only_used(sums):
        assert (len(trace.collectives), len(trace.transfers)) == (2, 2)


def test_a_replay_may_use_all_that_came_before():
    static, graph = torch.zeros(4, device="cuda"), torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = static.exp()
    with lab.record() as trace:
        static.copy_(torch.rand(4, device="cuda"))
        graph.replay()
    assert used_in(trace, out) == names_of(trace)


CHECK = """
y = expect.run(answer, x)
expect.close(y, x @ x)
expect.kernels(named="mm", at_least=1)
products = [one for one in expect_trace.kernels if "mm" in one.name]
expect.true(len(products) == 1, "one product")
"""


def flagged(answer):
    """The numbers of the statements of a check that are met by work for show alone."""
    with lab.record() as trace:
        x = torch.rand(8, 8, device="cuda")
        answer(x)
    trace._recorder.kept.clear()
    names = {"answer": answer, "x": x, "expect_trace": trace}
    told = []
    check = Observation(names, None, "<check>", told.append)
    found = []
    for number, statement in enumerate(ast.parse(CHECK).body):
        check.run(ast.unparse(statement), canary=False, made={"x", "y"})
        found += [number] if check.for_show else []
    assert sum("saw" in one for one in told) == 3
    return found


def test_a_check_that_is_met_by_work_for_show_is_noticed():
    def honest(x):
        return x @ x

    def for_show(x):
        x @ x
        return (x.cpu() @ x.cpu()).cuda()

    assert flagged(for_show) == [2, 4]
    assert flagged(honest) == [4]  # of that recording, nobody keeps the result


AROUND = {
    "a dictionary": "box = {}\ndef average(x):\n    box[0] = x\n    x.copy_(sum(box.values()))",
    "an alias": "box = {}\ndef average(x):\n    mine = box\n    mine[0] = x\n    return mine[1]",
    "a default": "def average(x, box=[]):\n    box.append(x)\n    x.copy_(box[0])",
    "a closure": (
        "def make():\n    box = {}\n    def average(x):\n        box[0] = x\n        return box[1]\n"
        "    return average\naverage = make()"
    ),
    "an object": (
        "class Average:\n    def __init__(self):\n        self.box = {}\n    def __call__(self, x):\n"
        "        self.box[0] = x\n        return self.box[1]\naverage = Average()"
    ),
    "a tensor": "box = torch.zeros(4)\ndef average(x):\n    box[dist.get_rank()] = x\n    x.copy_(box.sum(0))",
    "a global name": "last = None\ndef average(x):\n    global last\n    last = x\n    return last",
    "a cache": "@cache\ndef box(n):\n    return []\ndef average(x):\n    box(1).append(x)\n    return box(1)[0]",
    "a function": "def average(x):\n    average.box = x\n    return average.box",
    "a queue": "box = Queue()\ndef average(x):\n    box.put(x)\n    return box.get()",
    "a helper": "box = {}\ndef put(to, x):\n    to[0] = x\ndef average(x):\n    put(box, x)\n    return box[0]",
    "a file": 'def average(x):\n    torch.save(x, "a")\n    return torch.load("a")',
}


@pytest.mark.parametrize("way", AROUND)
def test_what_ranks_share_is_noticed(way):
    (found,) = Shared(set()).flags(ast.parse(AROUND[way]))
    assert "ranks could pass data through" in found


@pytest.mark.parametrize(
    "honest",
    [
        "losses, rows = [], {}\ndef train(x):\n    losses.append(x)\n    rows[0] = x\n    print(len(rows))",
        (
            "class Zero:\n    def __init__(self, p):\n        self.parts = list(p)\n    def step(self):\n"
            "        self.parts.append(1)\n        return self.parts\ndef prepare(model):\n    return Zero(model)"
        ),
        (
            "def wrapped(model):\n    seen = []\n    def hook(x):\n        seen.append(x)\n        return seen[0]\n"
            "    return hook"
        ),
        "def train(x):\n    dist.send(x, 1)\n    return dist.get_rank()",
    ],
)
def test_results_that_are_read_when_all_have_ended_are_not(honest):
    assert not [*Shared(set()).flags(ast.parse(honest), {"dist"})]


def test_the_policy_looks_at_what_ranks_share_where_a_lesson_has_ranks():
    given, text = ["import torch.distributed as dist\nlab.run_ranks(print, 2)"], AROUND["a dictionary"]
    assert Policy(given).flags(text) == ["line 4: ranks could pass data through box, without a message"]
    assert not Policy(["import torch"]).flags(text)


def test_a_function_that_reads_what_the_check_compares_with_is_flagged():
    policy = Policy(["alone = torch.ones(2)"], compared={"alone"})
    assert policy.flags("def answer(x):\n    return alone") == [
        "line 2 reads alone, with which the check compares the result"
    ]
    assert not policy.flags("print(alone)\ndef answer(alone):\n    return alone")


def test_what_the_check_compares_with_is_not_given_to_an_answer_out_of_its_sight():
    def found(text):
        solution = "def prepare(model):\n    return model"
        return Policy(["import os\nalone = torch.ones(2)"], solutions=[solution], compared={"alone"}).flags(text)

    assert found("class Known: pass\nprepare = Known(alone)") == [
        "line 2 makes prepare with alone, with which the check compares the result"
    ]
    assert found("import os\nos.environ['known'] = repr(alone)") == [
        "line 2 fills os.environ['known'] with alone, with which the check compares the result"
    ]
    assert not found("def prepare(model):\n    return model\nmine = prepare(alone)\nprint(mine, alone)")


def test_a_copy_whose_result_is_thrown_away_is_told_apart_from_other_work():
    def kinds(check):
        with lab.record() as trace:
            x = torch.rand(8, 8)
            x.to("cuda")
            x.to("cuda") @ x.to("cuda")
        trace._recorder.kept.clear()
        shown = Observation({"trace": trace}, None, "<check>", lambda message: None)
        shown.run(check, canary=False)
        return shown.for_show

    assert kinds("expect.transfers(h2d=3, trace=trace)") == "copies"
    assert kinds("expect.kernels(at_least=1, named='mm', trace=trace)") == "work"
    assert kinds("expect.transfers(h2d=3, trace=trace) and expect.kernels(at_least=1, trace=trace)") == "work"
    assert kinds("expect.transfers(h2d=4, trace=trace)") == ""


@pytest.mark.parametrize(("points", "flagged"), [(0.5, []), (1.0, []), (1.5, [2]), (2.0, [1, 2])])
def test_work_for_show_is_an_honest_mistake_where_an_answer_earns_little(points, flagged):
    seen = {"for_show": [(1, "copies"), (2, "work")]}
    check = CheckOutcome(grade_id="a-check", points=points, max_points=2.0)
    assert [number for _, number, _ in _seen_by_check("a-check", seen, check)] == flagged
