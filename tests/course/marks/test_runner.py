"""What a submission's process does with the cells that it is sent: one process for all of these."""

from __future__ import annotations

import _thread
import queue
import threading
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from fakegpu_lab.course.checks.examination import Examination
from fakegpu_lab.course.flags.files import LessonFiles
from fakegpu_lab.course.flags.left_behind import LeftBehind
from fakegpu_lab.course.grade.sandbox import cell_runner
from fakegpu_lab.course.grade.sandbox.limits import Limits
from fakegpu_lab.course.grade.sandbox.process import Sandbox
from fakegpu_lab.course.grade.sandbox.shell import Outputs

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class Process:
    """A submission's process, to which cells are sent by their text."""

    def __init__(self, sandbox: Sandbox) -> None:
        self.sandbox = sandbox

    def cell(self, source: str, kind: str = "student", **job: Any) -> dict[str, Any]:
        about = {"given_by_solution": [], "classes": [], "any_gpus": False}
        return self.sandbox.run({"id": "a", "kind": kind, "source": source, "visible": source, **about, **job})

    def check(self, source: str, **job: Any) -> dict[str, Any]:
        """A check with ``%%check`` in front, as the grader sends it, but without canaries."""
        own = [one for one in Examination("\n" + source, gpus=False).job()["statements"] if not one[1]]
        return self.cell("%%check first\n" + source, "check", **{"exercise": "first", "statements": own} | job)

    def assertions(self, source: str, **job: Any) -> dict[str, Any]:
        """A check without it."""
        return self.cell(source, "check", **{"exercise": "", **Examination("", gpus=False).job()} | job)


@pytest.fixture(scope="module")
def process() -> Iterator[Process]:
    files = {"data.csv": b"1,2\n", "helper.py": b"x = 1\n", "sub/more.csv": b"3\n"}
    with Sandbox(
        files, Limits(), [], given=["data.csv", "sub/more.csv"], read=["data", "rows", "Kind"], texts=["sum(range(9))"]
    ) as sandbox:
        yield Process(sandbox)


def saw(message: dict[str, Any]) -> list[Any]:
    """What the check's own expectations saw."""
    found = [one["data"] for one in message["told"] if one.get("saw") == "equal"]
    return [data["found"] for data in found if data["expected"] == "mine"]


def test_cells_share_their_names_and_say_what_they_print(process: Process) -> None:
    process.cell("first = 41")
    message = process.cell("print(first + 1)\nfirst")
    printed, shown = message["outputs"]
    assert (printed["name"], printed["text"]) == ("stdout", "42\n")
    assert shown["data"]["text/plain"] == "41"
    assert (message["interrupted"], message["restored"], message["threads"], message["tried"]) == (False, [], 0, [])
    (error,) = process.cell("def f():\n    return 1 / 0\nf()")["outputs"]
    assert (error["ename"], error["evalue"]) == ("ZeroDivisionError", "division by zero")
    assert any(line.endswith(", line 2: return 1 / 0") for line in error["traceback"])


def test_a_check_reports_what_it_sees(process: Process) -> None:
    process.cell("seen = 7")
    message = process.check("expect.equal(seen, 'mine')\nexpect.equal(seen + 1, 'mine')")
    assert (message["ended"], message["has_value"], saw(message)) == (True, False, [7, 8])
    assert [one["n"] for one in message["told"]] == list(range(len(message["told"])))
    assert message["outputs"] == message["left"] == message["rebound"] == []


LOOKS = """
import ast, sys
def below(depth=3):
    found, frame = [], sys._getframe(1)
    def look(thing, depth):
        if isinstance(thing, str): found.append(thing)
        elif isinstance(thing, ast.AST): found.append(ast.unparse(thing))
        elif depth and isinstance(thing, (dict, list, tuple)):
            for one in (thing.values() if isinstance(thing, dict) else thing): look(one, depth - 1)
        elif depth and type(thing).__name__ in ("Observation", "RunningCheck", "_Runner", "Part"):
            names = getattr(thing, "__slots__", None) or vars(thing)
            for name in names: look(getattr(thing, name), depth - 1)
            if type(thing).__name__ == "RunningCheck":
                try: thing.observed = print
                except AttributeError: pass
                else: found.append("what a check reports" + " to")
    while frame is not None:
        for name, one in frame.f_locals.items():
            if name != "found": look(one, depth)
        frame = frame.f_back
    return [one for one in found if "sec" + "ret" in one or "what a check reports" + " to" in one]
"""


def test_nothing_below_an_answer_s_frames_holds_the_rest_of_a_check(process: Process) -> None:
    process.cell(LOOKS)
    message = process.check("expect.equal(below(), 'mine')\nexpect.equal('secret', 'other')")
    assert saw(message) == [["list", []]]
    assert message["ended"]


def test_a_name_of_the_lesson_that_changes_while_a_check_runs_spoils_it(process: Process) -> None:
    process.cell("def fixed(): return 1", "given")
    process.cell("import sys\ndef change():\n    sys._getframe(1).f_locals['fixed'] = lambda: 2\n    return 2")
    message = process.check("expect.equal(change(), fixed())\nexpect.equal(fixed(), 1)")
    assert [one["changed"] for one in message["told"] if "changed" in one] == [["fixed"]]
    assert [one["data"]["found"] for one in message["told"] if "saw" in one] == [2, 1], (
        "the next statement has it again"
    )
    message = process.check("def fixed(): return 3\nexpect.equal(fixed(), 3)")
    assert not [one for one in message["told"] if "changed" in one], "a check may use the name for another function"
    process.cell("def fixed(): return 1", "given")


def test_a_check_that_is_interrupted_has_not_ended() -> None:
    told = iter([{"left": ["a"], "has_value": False}, {"ran": True}, {}])
    sent: list[dict[str, Any]] = []

    def run(part: dict[str, Any]) -> dict[str, Any]:
        sent.append(part)
        return next(told)

    about = dict.fromkeys(("id", "visible", "given_by_solution", "any_gpus", "classes"))
    job = about | {"source": "hidden", "exercise": "first", "statements": [["a", False], ["b", True], ["c", False]]}
    assert cell_runner._run_check(job, run) == {"left": ["a"], "has_value": False, "ran": True}
    assert [one.get("text") for one in sent] == [None, "a", "b"]
    assert not any("source" in one for one in sent)


RUN_TEXT = {
    "eval('1 + 1')": "ran a text as code",
    "import sympy\nsympy.simplify('1 + 1')": "ran a text as code (sympy)",
    "import yaml\nyaml.CUnsafeLoader('!!python/object/apply:builtins.exec [\"x = 1\"]').get_single_data()": (
        "ran a text as code (yaml)"
    ),
    "import typing_extensions\ndef f(): pass\nf.__annotations__['x'] = '1 + 2'\n"
    "typing_extensions.get_annotations(f, eval_str=True)": "ran a text as code (typing_extensions)",
    "x = 3\n%who x{x}": "ran a text as code (IPython)",
    "import pickle\npickle.loads(b'cbuiltins\\nexec\\n(Vy = 1\\ntR.')": "loaded a pickle that brings builtins.exec",
    "import pickle\ntry: pickle.loads(b'\\x80\\x04ctorch\\nos.system\\n.')\nexcept AttributeError: pass": (
        "loaded a pickle that brings torch.os.system"
    ),
    "import timeit\nlist(map(timeit.timeit, ['1 + 1'], ['pass'], [timeit.default_timer], [1]))": (
        "ran a text as code (timeit)"
    ),
    "get_ipython().run_cell('shown = 1')": "ran a text as code (IPython)",
    "import logging\ndef told():\n"
    "    yield logging.Formatter('{x.gi_frame}', None, '{').format(logging.makeLogRecord({'x': box[0]}))\n"
    "box = [None]\nbox[0] = told()\nnext(box[0])": "read gi_frame",
    "import marshal\nmarshal.loads(marshal.dumps(1))": "loaded compiled code",
    "from pathlib import Path\nPath('.inductor/a').mkdir(parents=True, exist_ok=True)\n"
    "Path('.inductor/a/b.py').write_text('x = 1')": "wrote where compiled kernels are kept",
    "import torch\nopen('own.so', 'wb').close()\n"
    "try: torch.ops.load_library('./own.so')\nexcept OSError: pass": "loaded a library of its own",
}
RUN_TEXT |= {
    "from dataclasses import dataclass\n@dataclass(init=False, repr=False)\nclass A:\n    x: int\n"
    "    __annotations__['x, __import__(chr(111))'] = int": "ran a text as code (dataclasses): it names __import__",
    "import torch\nclass Net(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n"
    '        self.register_buffer(\'training") if eval("1") is None else ("\', torch.ones(2))\n'
    "    def forward(self, x): return x + sum(self.buffers())\n"
    "torch.export.export(Net(), (torch.ones(2),)).module()(torch.ones(2))": "ran a text as code (torch): it names eval",
    "import torch\ngraph = torch.fx.symbolic_trace(torch.nn.Identity())\n"
    "graph.graph.on_generate_code(lambda before: lambda body: ['import ast\\n', *body])\ngraph.recompile()": (
        "ran a text as code (torch): it names ast"
    ),
    "import torch\ngraph = torch.fx.symbolic_trace(torch.nn.Identity())\n"
    "graph.graph.on_generate_code(lambda before: lambda body: ['torch.Tensor.mH = 1\\n', *body])\n"
    "graph.recompile()": "ran a text as code (torch): it names mH",
    "import sympy\nx = sympy.Symbol('x')\n"
    "text = \"(lambda x: [getattr(nprint, 'x', 1), x - 1][1])\"\n"
    "sympy.nsolve(sympy.Function(text)(x), x, 0.5)": "ran a text as code (sympy): it names getattr",
    "import pickle\npickle.loads(b'cmultiprocessing.spawn\\nimport_main_path\\n.')": (
        "loaded a pickle that brings multiprocessing.spawn.import_main_path"
    ),
    "import runpy\nopen('text', 'w').write('y = 1')\nrunpy.run_path('text')": "ran a text as code (<frozen runpy>)",
    "import tqdm\ntqdm.tqdm.format_meter(0, 1, 1.0, bar_format='{f.' + '__code__.co_names}', f=tqdm.tqdm.close)": (
        "read __code__"
    ),
    "import inspect\ninspect.stack(0)": "looked at the frames below it",
    "try: 1 / 0\nexcept ZeroDivisionError as error: dict(inspect.getmembers(error.__traceback__))": "read tb_frame",
}
RUN_NO_TEXT = """
import copy, functools, itertools, timeit, typing
from collections import namedtuple
from dataclasses import dataclass, field
import numpy as np
import torch, sympy, yaml
@dataclass
class A:
    x: list = field(default_factory=list)
P = namedtuple("P", "x y")
class T(typing.NamedTuple):
    x: int
T(1); A(); P(1, 2)
copy.deepcopy([A(), P(1, 2), torch.ones(2)])
timeit.timeit("sum(range(9))", number=2)
sympy.simplify(sympy.symbols("x") * 2)
yaml.safe_load("a: [1, 2]")
torch.save({"a": torch.ones(2), "b": [1]}, "made.pt")
torch.load("made.pt")
import collections, datetime, decimal, logging, pathlib, pickle, random
held = [np.ones(3), np.float32(2), np.random.default_rng(1), np.random.RandomState(1), collections.OrderedDict(a=1),
        collections.Counter("a"), datetime.date(2026, 1, 1), decimal.Decimal(1), pathlib.Path("a"), random.Random(1)]
pickle.loads(pickle.dumps(held))
torch.save([torch.nn.Sequential(torch.nn.Linear(2, 2)), torch.float16, torch.ones(2).to_sparse()], "whole.pt")
torch.load("whole.pt", weights_only=False)
logging.getLogger("a").info("x")
@dataclass
class N:
    name: str
    shape: tuple = ()
N("a")
@dataclass(frozen=True, order=True, slots=True)
class F:
    x: int
    y: list = field(default_factory=list, compare=False)
F(1) < F(2)
torch.export.export(torch.nn.Linear(2, 2), (torch.ones(2, 2),)).module()(torch.ones(2, 2))
sympy.nsolve(sympy.Symbol("x") ** 2 - 2, 1)
sympy.lambdify(sympy.Symbol("x"), sympy.sin(sympy.Symbol("x")))(1.0)
torch.fx.symbolic_trace(torch.nn.Linear(2, 2))(torch.ones(2, 2))
try:
    import matplotlib.pyplot as plt
    import pandas as pd
except ImportError:
    pass
else:
    pd.DataFrame({"a": [1, 2]}).describe()
    fig, ax = plt.subplots()
    ax.plot([1, 2])
class D(torch.utils.data.Dataset):
    def __len__(self): return 4
    def __getitem__(self, i): return torch.ones(2) * i
[one for one in torch.utils.data.DataLoader(D(), batch_size=2)]
torch.jit.script(torch.nn.Linear(2, 2))
%time sum(range(9))
%timeit -n1 -r1 sum(range(9))
"""


@pytest.mark.parametrize("text", RUN_TEXT)
def test_text_that_a_library_runs_is_reported_whatever_its_function_is_called(process: Process, text: str) -> None:
    process.cell(text)
    assert RUN_TEXT[text] in process.sandbox.flags


def test_a_cell_that_is_no_python_says_so_and_one_that_claims_it_does_not(process: Process) -> None:
    for text in ("x = (", "%%time\nx = (", "  def f():\n return 1"):
        assert process.cell(text)["unreadable"]
    for text in ("raise SyntaxError('x')", "%%time\nraise SyntaxError('x')", "x = 1\n%time y = (", "x = 1"):
        assert not process.cell(text)["unreadable"]


def test_what_a_child_does_is_reported_too(process: Process) -> None:
    """A DataLoader's worker read the check's frames, and ran texts, without a word."""
    process.cell(
        "from torch.utils.data import DataLoader, Dataset\nclass Rows(Dataset):\n    def __len__(self): return 2\n"
        "    def __getitem__(self, index):\n        eval(compile('1 + 1', '<mine>', 'eval'))\n        return index"
    )
    before = set(process.sandbox.flags)
    process.cell("found = [*DataLoader(Rows(), num_workers=1)]")
    (flag,) = process.sandbox.flags - before
    assert flag.endswith(", in a process that it started"), flag


def test_what_a_check_draws_with_is_put_back(process: Process) -> None:
    process.cell("import secrets, random\nsecrets.randbelow = lambda n: 0\nrandom.SystemRandom = random.Random")
    restored = process.check("expect.true(True)")["restored"]
    assert {"secrets.randbelow", "random.SystemRandom"} <= set(restored)


def test_a_machine_that_changes_while_a_check_runs_is_named(process: Process) -> None:
    process.cell("import fakegpu_lab as lab\nlab.enable('a100')", "given")
    process.cell("import torch\ndef f(): lab.enable('h100')\ndef g(): torch.set_grad_enabled(False)")
    message = process.check("import fakegpu_lab as lab\nexpect.equal(f(), None)\nexpect.equal(g(), None)")
    assert message["altered"] == [[2, "the GPUs"], [3, "torch's settings"]]
    process.cell("lab.enable('a100'); torch.set_grad_enabled(True)", "given")
    process.cell(
        "def f(): torch.backends.cudnn.allow_tf32 = False\ndef g(): torch.set_float32_matmul_precision('high')"
    )
    message = process.check("import fakegpu_lab as lab\nexpect.equal(f(), None)\nexpect.equal(g(), None)")
    assert message["altered"] == [[2, "torch's settings"], [3, "torch's settings"]]
    process.cell("lab.disable(); torch.set_grad_enabled(True)", "given")
    process.cell("torch.set_grad_enabled(False)")
    assert "gradients were left off" in process.check("expect.true(True)")["left"]


def test_a_recording_of_the_lesson_stays_the_first_and_nothing_queued_is_in_it(process: Process) -> None:
    process.cell("import torch\nimport fakegpu_lab as lab\nlab.enable('a100')", "given")
    process.cell("x = torch.ones(4096, 4096).cuda()", "given")
    queue, record = "for _ in range(9): x @ x", "with lab.record() as rows:\n    (x + x).sum().item()"
    process.cell(f"{record}\nshort = rows.elapsed", "given")
    process.cell(queue)
    process.cell(f"{record}\nrows.elapsed", "given")
    message = process.check("expect.equal(rows.elapsed < 2 * short, 'mine')")
    assert (saw(message), message["left"]) == ([True], [])
    process.cell(f"{queue}\n{record}\nlong = rows.elapsed > 9 * short")
    message = process.check("expect.equal([long, rows.elapsed < 2 * short], 'mine')")
    assert (saw(message), message["left"]) == ([["list", [True, True]]], [])
    process.cell("lab.disable()", "given")


SEALED = {
    "a property": "setattr(type(lab.record()), 'elapsed', property(lambda self: 0))",
    "a writer of argparse": "import argparse; store = argparse.ArgumentParser().add_argument('--elapsed'); "
    "store(None, type(lab.record()), 0)",
    "taken away": "del type(lab.record()).elapsed",
    "a class above": "type(lab.record()).__mro__[1].transfers = ()",
}


@pytest.mark.parametrize("name", SEALED)
def test_what_a_check_measures_with_cannot_be_changed_for_a_moment_either(name: str, process: Process) -> None:
    process.cell("import fakegpu_lab as lab\nlab.enable('a100')", "given")
    process.cell(f"def f(): {SEALED[name]}")
    (told,) = [one for one in process.check("expect.equal(f(), 1)")["told"] if "crashed" in one]
    assert "cannot be changed here" in str(told)
    assert any(one.startswith("tried to change the class") for one in process.sandbox.flags)
    message = process.check("expect.equal(type(lab.record()).elapsed.fset is None, 'mine')")
    assert (saw(message), message["restored"]) == ([True], [])
    process.cell("lab.disable()", "given")


def test_the_classes_of_its_records_are_put_back_after_each_statement(process: Process) -> None:
    process.cell("import torch\nimport fakegpu_lab as lab\nlab.enable('a100')", "given")
    process.cell(
        "def f():\n    with lab.record() as t: torch.ones(2, device='cuda')\n"
        "    type(t.kernels[0]).flops = 3\n    type(t.kernels[0]).more = 3\n    return t.kernels[0].flops"
    )
    message = process.check("expect.equal(f(), 'mine')\nwith lab.record() as t: torch.ones(2, device='cuda')\n"
                            "expect.equal(t.kernels[0].flops, 'mine')")  # fmt: skip
    assert saw(message) == [3, 0]
    assert message["altered"] == [[1, "the class Kernel"]]
    process.cell("lab.disable()", "given")


def test_variables_that_change_times_are_put_back(process: Process) -> None:
    process.cell("import os\nos.environ['NCCL_P2P_DISABLE'] = '1'\ndef f(): os.environ['NCCL_ALGO'] = 'Tree'")
    message = process.check(
        "import os\nexpect.equal(os.environ.get('NCCL_P2P_DISABLE'), 'mine')\nexpect.equal(f(), None)"
    )
    assert (saw(message), message["left"]) == ([None], [])
    assert message["altered"] == [[3, "variables of the environment"]]
    process.cell("os.environ.pop('NCCL_ALGO', None)")


def test_a_debugger_that_was_left_in_is_no_flag(process: Process) -> None:
    before = set(process.sandbox.flags)
    said = process.cell("open('.pdbrc', 'w').write('up\\nargs\\nc')\nimport pdb\npdb.set_trace()\nx = 1")
    assert (process.sandbox.flags, said["outputs"]) == (before, [])


def test_a_breakpoint_calls_nothing(process: Process) -> None:
    process.cell("import os\nos.environ['PYTHONBREAKPOINT'] = 'builtins.globals'\nstopped = breakpoint()")
    message = process.check("expect.equal(stopped, 'mine')")
    assert (saw(message), message["left"]) == ([None], [])
    process.cell("import sys, os\nsys.breakpointhook = os.getpid")
    assert process.check("expect.true(True)")["left"] == ["sys.breakpointhook had been replaced"]


def test_what_libraries_generate_honestly_is_not_reported(process: Process) -> None:
    before = set(process.sandbox.flags)
    message = process.cell(RUN_NO_TEXT)
    process.cell("evaluated = [eval(text) for text in ('1 + 1',)]\ndef of_lesson(): return exec('1 + 2')", "given")
    process.cell("of_lesson()")
    assert not [one for one in message["outputs"] if one["output_type"] == "error"]
    assert process.sandbox.flags == before


@pytest.mark.parametrize(
    ("last", "has_value", "score"),
    [("1.5", True, 1.5), ("True", True, 1.0), ("None", False, None), ("'2'", True, None), ("float('nan')", True, -1.0),
     ("float('inf')", True, -1.0), ("[3]", True, None), ("x = 3", False, None)],
)  # fmt: skip
def test_the_last_line_of_a_check_of_assertions_is_its_number(
    process: Process, last: str, has_value: bool, score: float | None
) -> None:
    message = process.assertions(f"value = 3\nassert value == 3\n{last}")
    assert (message["has_value"], message["score"], message["ended"]) == (has_value, score, True)
    assert [out["output_type"] for out in message["outputs"]] == ["execute_result"] * has_value


def test_a_check_of_assertions_that_fails_has_not_ended(process: Process) -> None:
    message = process.assertions("assert 1 == 2, 'no'")
    assert not message.get("ended")
    assert [out["ename"] for out in message["outputs"]] == ["AssertionError"]


def test_what_one_check_defines_and_another_calls_stays_what_it_was(process: Process) -> None:
    process.check("def work(): return 3\nexpect.equal(work(), 'mine')")
    process.cell("def work(): return 4")
    assert saw(process.check("expect.equal(work(), 'mine')")) == [3]
    process.cell("work = lambda: 5", "given")
    assert saw(process.check("expect.equal(work(), 'mine')")) == [5], "the lesson gives it another meaning"


def test_names_of_the_lesson_have_their_meaning_again(process: Process) -> None:
    process.cell("def reference(k): return k\nimport math\ntable = [1]", "given")
    process.cell("def reference(k): return 0\nmath = None\ntable = [2]\ndef abs(x): return 0\nmine = abs")
    source = "expect.equal([reference(3), math is None, table, abs(-2)], 'mine')"
    message = process.check(source)
    assert sorted(message["rebound"]) == ["abs", "math", "reference"]
    (found,) = saw(message)
    assert found == ["list", [3, False, ["list", [2]], 2]], "plain values are the student's to change"
    message = process.check(source, given_by_solution=["reference", "abs"])
    assert message["rebound"] == ["math"]
    assert saw(message) == [["list", [0, False, ["list", [2]], 0]]]
    process.cell("del abs\nimport math\ndef reference(k): return k", "given")
    assert process.check(source)["rebound"] == []


def test_a_student_s_own_function_is_no_name_of_the_lesson(process: Process) -> None:
    process.cell("def own(k): return 1", "student")
    process.cell("def own(k): return 2", "student")
    message = process.check("expect.equal(own(0), 'mine')")
    assert (message["rebound"], saw(message)) == ([], [2])


def test_a_builtin_that_has_another_meaning_has_its_own(process: Process) -> None:
    """`abs` as `operator.not_` made every difference small."""
    process.cell("from operator import not_ as abs\nfrom functools import partial\nlen = partial(print)\nsum = 0")
    message = process.check("expect.equal([abs(-2), len([1]), sum], 'mine')")
    assert (message["rebound"], saw(message)) == ([], [["list", [2, 1, 0]]])
    process.cell("del abs, len, sum")
    process.cell("from numpy import round", "given")
    assert "numpy" in saw(process.check("expect.equal(type(round(1.5)).__module__, 'mine')"))[0]
    process.cell("del round", "given")


def test_methods_of_the_lesson_s_classes_and_names_that_a_magic_binds(process: Process) -> None:
    process.cell("class Kind:\n    def size(self): return 3\ndata = [1]", "given")
    assert process.cell("free = Kind().size()")["altered"] == []
    assert process.cell("kind = dict(a=Kind)['a']\nkind.size = lambda self: 4")["altered"] == [[0, "Kind"]]
    assert process.cell("data = [2]")["altered"] == [], "the text says so"
    assert process.cell("get_ipython().user_ns['da' + 'ta'] = [2]")["altered"] == [[0, "data"]]


def test_what_a_function_of_the_lesson_remembers_of_a_student_s_cell_is_forgotten(process: Process) -> None:
    process.cell("import functools\nfactor = 1\n@functools.cache\ndef times(k): return k * factor\ntimes(1)", "given")
    process.cell("factor = 9\ntimes(2)\nfactor = 1")
    assert saw(process.check("expect.equal([times(1), times(2)], 'mine')")) == [["list", [1, 2]]]


def test_values_that_the_lesson_made_and_a_check_reads(process: Process) -> None:
    process.cell(
        "import torch, numpy as np\ndata = torch.ones(3)\nrows = [[1], {'a': np.ones(2)}]\nfree = [1]", "given"
    )
    source = "expect.equal(1, 'mine')"
    assert process.check(source)["left"] == []
    process.cell("alias = data\nalias.add_(1)\nrows[1]['a'][0] = 5\nfree.append(2)")
    message = process.check("expect.equal([data.tolist(), rows[1]['a'].tolist(), free], 'mine')")
    assert sorted(message["left"]) == [
        "data, which the lesson made, had been changed",
        "rows, which the lesson made, had been changed",
    ]
    (found,) = saw(message)
    assert found == ["list", [["list", [1.0, 1.0, 1.0]], ["list", [1.0, 1.0]], ["list", [1, 2]]]]
    assert process.check(source)["left"] == []
    process.cell("data = object()")
    assert process.check(source)["left"] == ["data, which the lesson made, had been changed"]
    process.cell("data = torch.ones(10**7)", "given")
    process.cell("data = 3")
    assert process.check(source)["left"] == [], "it was too large to be kept"


def test_values_that_one_check_makes_for_another(process: Process) -> None:
    process.check("rows = 8\ndata = [1]\nexpect.equal(rows, 'mine')", visible="rows = 8\ndata = [1]")
    process.cell("rows *= 4\ndata.append(2)")
    message = process.check("expect.equal([rows, data], 'mine')")
    assert sorted(message["left"]) == [f"{name}, which the lesson made, had been changed" for name in ("data", "rows")]
    assert saw(message) == [["list", [8, ["list", [1]]]]]


def test_what_a_check_makes_visibly_stays(process: Process) -> None:
    process.check("shown = 5\nhidden = 6\nexpect.equal(shown, 'mine')", visible="shown = 5")
    assert process.cell("print(shown, 'hidden' in dir())")["outputs"][0]["text"] == "5 False\n"


def test_the_lesson_s_files_are_put_back(process: Process) -> None:
    assert process.cell("open('data.csv', 'w').write('9')\nimport os\nos.remove('sub/more.csv')")["restored"] == []
    assert process.cell("print(open('data.csv').read(), end='')")["outputs"][0]["text"] == "9", (
        "the student's own doing"
    )
    message = process.cell("print(open('data.csv').read(), open('sub/more.csv').read())", "given")
    assert message["outputs"][0]["text"] == "1,2\n 3\n\n"
    assert sorted(message["restored"]) == ["data.csv", "sub/more.csv"]
    assert process.cell("1", "locked")["restored"] == []
    process.cell("import os\nos.remove('data.csv')\nos.mkdir('data.csv')")
    assert process.check("expect.equal(open('data.csv').read(), 'mine')")["restored"] == ["data.csv"]


def test_torch_and_the_machine_are_as_the_lesson_left_them(process: Process) -> None:
    process.cell("import torch\nimport fakegpu_lab as lab\nlab.enable('t4')", "given")
    assert process.check("expect.equal(1, 'mine')")["left"] == []
    process.cell("torch.set_default_dtype(torch.float64)\nlab.enable('h100')")
    message = process.check("expect.equal(str(torch.ones(1).dtype), 'mine')")
    assert message["left"] == [
        "torch's default dtype was torch.float64",
        "the GPUs were h100 (real values, real clock) instead of t4 (real values, real clock)",
    ]
    assert saw(message) == ["torch.float32"]
    process.cell("lab.enable('t4', compute='meta')", "given")
    process.cell("lab.enable('t4')")
    message = process.check("expect.equal(1, 'mine')")
    assert message["left"] == ["the GPUs were t4 (real values, real clock) instead of t4 (meta values, real clock)"]
    assert process.check("expect.equal(1, 'mine')")["left"] == [], "it is said once"
    process.cell("lab.disable()")
    assert process.check("expect.equal(1, 'mine')", any_gpus=True)["left"] == []
    process.cell("torch.set_default_dtype(torch.float64)", "given")
    assert saw(process.check("expect.equal(str(torch.ones(1).dtype), 'mine')")) == ["torch.float64"], (
        "the lesson's choice"
    )
    process.cell("torch.set_default_dtype(torch.float32)", "given")
    process.cell("torch.set_float32_matmul_precision('high')")
    message = process.check("expect.equal(torch.get_float32_matmul_precision(), 'mine')")
    assert (saw(message), message["left"]) == (["highest"], []), (
        "trying TF32 is honest, and no exercise is faster by it"
    )
    process.cell("torch.backends.cuda.matmul.fp32_precision = 'tf32'")  # after it, torch's older function raises
    message = process.check("expect.equal(torch.get_float32_matmul_precision(), 'mine')")
    assert (saw(message), message["left"]) == (["highest"], [])


def test_what_an_answer_sets_before_the_first_cell_of_the_lesson_is_not_the_lesson_s_either(process: Process) -> None:
    process.cell(
        "import torch\ntorch.set_grad_enabled(False)\n"
        "torch.autograd.graph.saved_tensors_hooks(lambda x: x, lambda x: x * 0).__enter__()"
    )
    message = process.cell("x = torch.ones(1, requires_grad=True)\nkept = (x * x).requires_grad", "given")
    assert message["left"] == ["gradients were left off", "hooks on saved tensors were left on"]
    assert saw(process.check("expect.equal(kept, 'mine')")) == [True]


def test_what_an_answer_sets_before_a_cell_of_the_lesson_is_not_the_lesson_s(process: Process) -> None:
    process.cell("import torch\nimport fakegpu_lab as lab\nlab.enable('t4')", "given")
    process.cell("torch.set_default_dtype(torch.float16)\ncast = torch.autocast('cuda')\ncast.__enter__()")
    left = ["torch's default dtype was torch.float16", "autocast on cuda was left on"]
    assert process.cell("kept = str(torch.ones(1).dtype)", "given")["left"] == left
    message = process.check("expect.equal([kept, torch.is_autocast_enabled('cuda')], 'mine')")
    assert message["left"] == []
    assert saw(message) == [["list", ["torch.float32", False]]]


def test_an_object_of_an_own_class_is_named_unless_the_lesson_has_the_class(process: Process) -> None:
    process.cell("class Loader:\n    workers = 2\nloader = Loader()")
    text = "expect.equal(loader.workers, 'mine')"
    assert process.check(text)["left"] == ["the check read .workers of an object of the answer's own class Loader"]
    assert process.check(text, classes=["Loader"])["left"] == []


def test_a_class_of_the_lesson_is_known_by_itself_not_by_its_name(process: Process) -> None:
    process.cell("from dataclasses import dataclass\n@dataclass\nclass Choice:\n    gpus: int", "given")
    process.cell("from collections import namedtuple\nmine = namedtuple('Choice', 'gpus')(8)\ntheirs = Choice(8)")
    found = process.check("expect.equal(theirs.gpus, 'mine')", classes=["Choice"])
    assert (saw(found), found["left"]) == ([8], [])
    found = process.check("expect.equal(mine.gpus, 'mine')", classes=["Choice"])
    assert "the check read .gpus of an object of the answer's own class Choice" in found["left"]


def test_a_class_that_a_library_has_under_another_name_is_not_the_answer_s(process: Process) -> None:
    process.cell("from torch.nn.attention import SDPBackend", "given")
    assert process.check("expect.equal(SDPBackend.MATH.name, 'MATH')")["left"] == []


def test_what_exercises_did_is_reported_once(process: Process) -> None:
    process.cell("%load_ext fakegpu_lab", "given")
    message = process.cell("%%exercise first\ny = 3")
    assert [told["exercise"] for told in message["tried"]] == ["first"]
    assert process.cell("z = 1")["tried"] == []
    assert [told["error"] for told in process.cell("%%exercise second\n1 / 0")["tried"]] == [
        "ZeroDivisionError: division by zero"
    ]


def test_a_machine_that_is_replaced_while_an_exercise_is_recorded_is_named(process: Process) -> None:
    process.cell("%load_ext fakegpu_lab\nimport fakegpu_lab as lab, torch\nlab.enable('a100')", "locked")
    assert process.cell("%%exercise one\nx = torch.ones(2).cuda()")["left"] == []
    said = "the GPUs had been replaced while the exercise was recorded"
    assert said in process.cell("%%exercise one\nlab.reset()\nx = torch.ones(2).cuda()")["left"]
    assert said not in process.cell("lab.reset()")["left"]


@pytest.mark.parametrize(("again", "named"), [("", False), ("lab.enable('h100')\n", True)])
def test_a_machine_that_is_reset_after_a_failed_kernel_is_not_named(process: Process, again: str, named: bool) -> None:
    process.cell("%load_ext fakegpu_lab\nimport fakegpu_lab as lab, torch\nlab.enable('a100')", "locked")
    process.cell("%%exercise one\ntorch.ones(2).cuda()[torch.tensor([5]).cuda()]\ntorch.cuda.synchronize()")
    left = process.cell(f"%%exercise two\n{again}x = torch.ones(2).cuda()")["left"]
    assert ("the GPUs had been replaced while the exercise was recorded" in left) is named


def test_threads_of_the_notebook_s_own_are_counted(process: Process) -> None:
    message = process.cell("import threading\nstop = threading.Event()\nthreading.Thread(target=stop.wait).start()")
    assert message["threads"] == 0, "it waits in Python's own code"
    process.cell("def busy():\n    while not stop.wait(0.01): pass\nthreading.Thread(target=busy).start()")
    message = process.check("expect.equal(1, 'mine')")
    assert message["threads"] == 1
    assert process.cell("stop.set()")["threads"] <= 1
    assert "started a thread of its own" in process.sandbox.flags


def test_threads_are_reported_also_where_the_driver_stands_in_for_python_s(tmp_path: Path) -> None:
    with Sandbox({}, Limits(), []) as sandbox:
        own = Process(sandbox)
        own.cell("import threading, torch\nimport fakegpu_lab as lab\nlab.enable('t4')", "given")
        own.cell("one = torch.ones(2, device='cuda').sum().item()")
        assert not sandbox.flags
        own.cell("threading.Thread(target=print).start()")
        assert sandbox.flags == {"started a thread of its own"}


def test_builtins_have_their_meaning_after_each_cell(process: Process) -> None:
    message = process.cell("import builtins\nbuiltins.len = lambda x: 0\nbuiltins.mine = 1")
    assert message["restored"] == ["builtins.len"]
    assert process.cell("print(len([1]))")["outputs"][0]["text"] == "1\n"


def test_numbers_that_nbgrader_would_read() -> None:
    for value, score in ((2, 2.0), (0.5, 0.5), (True, 1.0), (float("nan"), -1.0), (float("-inf"), -1.0), ("2", None),
                         ([2], None), (SimpleNamespace(), None)):  # fmt: skip
        assert cell_runner._score_of(value) == score


def test_lines_of_a_pipe() -> None:
    parts = iter([b"one\ntw", b"o\nthr", b"ee\n", b""])
    lines = cell_runner._Lines(SimpleNamespace(read=lambda size: next(parts)))
    assert [lines.next() for _ in range(4)] == [b"one", b"two", b"three", b""]

    def broken(size: int) -> bytes:
        raise OSError

    assert cell_runner._Lines(SimpleNamespace(read=broken)).next() == b""


def test_a_result_counts_only_when_the_main_thread_waits() -> None:
    waiting = SimpleNamespace(f_code=cell_runner.serve.__code__)
    busy = SimpleNamespace(f_code=broken_code.__code__)
    frames = iter([busy, busy, waiting])
    assert cell_runner._idle(lambda: {7: next(frames)}, 7)  # type: ignore[dict-item]
    assert not cell_runner._idle(lambda: {7: busy, 8: waiting}, 7)  # type: ignore[dict-item]


def broken_code() -> None:
    """Some code that is not the runner's."""


class Stop(Exception):
    """Ends the control thread in a test, where the real one ends the process."""


def test_control_believes_the_result_of_the_job_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Results of other jobs, of other types, or while code still runs, are no result."""
    from fakegpu_lab.course.grade.sandbox.sealed_channel import seal, unseal

    key = b"k" * 32
    lines = iter([b'{"key": "%s"}' % key.hex().encode(), seal(key, b"down", 0, {"id": "one", "kind": "given"}), b""])
    written: list[bytes] = []
    jobs: Any = queue.SimpleQueue()
    results: Any = queue.SimpleQueue()
    notes: Any = queue.SimpleQueue()
    monkeypatch.setattr(cell_runner, "_Lines", lambda source: SimpleNamespace(next=lambda: next(lines)))
    monkeypatch.setattr(cell_runner.os, "_exit", lambda status: (_ for _ in ()).throw(Stop(status)))
    idle = iter([False, True])
    monkeypatch.setattr(cell_runner, "_idle", lambda current, main: next(idle))
    for result in ((2, {"score": 9}), (1, "told"), "no pair", (1, {"score": 8}), (1, {"score": 3})):
        results.put(result)
    notes.put("a flag " + "x" * 600)
    report = SimpleNamespace(write=written.append)
    with pytest.raises(Stop, match="0"):
        cell_runner._control(report, None, jobs, results, notes, 1, Outputs(1000), ["memory"], {})
    messages = [unseal(key, b"up", number, line) for number, line in enumerate(written)]
    assert jobs.get() == {"id": "one", "kind": "given", "serial": 1}
    assert messages[0] == {"ready": True, "in_force": ["memory"]}
    answer = messages[-1]
    assert answer is not None
    assert (answer["cell"], answer["score"], answer["over"], answer["outputs"]) == ("one", 3, False, [])
    assert "sent a result while its own code was still running" in answer["flags"]
    assert {"told": "told", "flags": []} in messages
    assert max(len(flag) for flag in answer["flags"]) == 500


def test_an_import_hook_of_a_cell_is_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    import builtins
    import sys

    left = LeftBehind()
    assert left.disarm() == []
    names: dict[str, Any] = {}
    exec(compile("def hook(*a, **k): return None", "<cell>", "exec"), names)
    with monkeypatch.context() as patch:
        patch.setattr(sys, "meta_path", [*sys.meta_path, SimpleNamespace(find_spec=names["hook"])])
        patch.setattr(sys, "displayhook", names["hook"])
        patch.setattr(builtins, "__import__", names["hook"])
        found = left.disarm()
    assert found == ["sys.displayhook had been replaced", "builtins.__import__ had been replaced"]
    assert _thread.get_ident() == threading.get_ident()


def test_a_lesson_s_file_that_became_a_link_is_a_file_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data.csv").write_bytes(b"1")
    other = tmp_path / "other.csv"
    other.write_bytes(b"1")
    files = LessonFiles(["data.csv"])
    assert files.put_back() == []
    (tmp_path / "data.csv").unlink()
    (tmp_path / "data.csv").symlink_to(other)
    assert files.put_back() == ["data.csv"]
    assert not (tmp_path / "data.csv").is_symlink()
    assert files.put_back() == []


REACHED = {
    "a table of the codec": ("codec._ENCODERS[int] = lambda one: 9", "codec._ENCODERS"),
    "a function in a table": ("codec._ENCODERS[list].__code__ = (lambda one: 9).__code__", "codec._ENCODERS"),
    "an entry that is gone": ("gone = codec._DECODERS.pop('attempt')", "codec._DECODERS"),
    "a number": ("codec.LARGEST = 0", "codec.LARGEST"),
    "a closure": ("expect.close.__closure__[0].cell_contents = None", "expect.values.close"),
    "what a closure holds": (
        "[c.cell_contents for c in expect.equal.__closure__ if type(c.cell_contents) is dict][0]['found'] = len",
        "expect.values.equal",
    ),
    "a signature": (
        "[c.cell_contents for c in expect.equal.__closure__ if 'Signature' in str(c)][0]._parameters = {}",
        "expectation.SIGNATURES",
    ),
    "a check that runs": (
        "from fakegpu_lab.course.expect import outcome\noutcome._running.append(9)",
        "outcome._running",
    ),
}


@pytest.mark.parametrize("name", REACHED)
def test_what_a_check_relies_on_is_put_back_whoever_reached_it(name: str, process: Process) -> None:
    code, place = REACHED[name]
    process.cell("from fakegpu_lab import expect\nfrom fakegpu_lab.course.expect.plain_data import codec")
    told = process.cell(code)
    assert not told["outputs"], told["outputs"]
    message = process.check("expect.equal(3, 'mine')\nexpect.close([1, 2], [1, 2])")
    assert any(place in one for one in message["restored"]), message["restored"]
    assert saw(message) == [3]
    message = process.check("expect.equal([3], 'mine')")
    assert message["restored"] == []
    assert saw(message) == [["list", [3]]]


REPLACED = {
    "a method of the driver's, by a partial": ("torch.Tensor.item = partial(lambda *a: 9)", "torch.Tensor.item"),
    "a method of the driver's, by torch's own": ("torch.Tensor.tolist = torch.Tensor.cpu", "torch.Tensor.tolist"),
    "a method of C++": ("torch.Tensor.sum = partial(lambda *a: 9)", "torch.Tensor.sum"),
    "a function of torch.cuda": ("torch.cuda.memory_allocated = partial(int)", "torch.cuda.memory_allocated"),
    "a function of ranks": ("torch.distributed.get_rank = partial(int)", "torch.distributed.get_rank"),
    "a clock": ("import time\ntime.perf_counter = partial(float)", "time.perf_counter"),
}


@pytest.mark.parametrize("name", REPLACED)
@pytest.mark.parametrize("machine", ["", "import fakegpu_lab as lab\nlab.enable('a100', clock='simulated')"])
def test_what_checks_measure_with_is_put_back_with_a_machine_and_without(
    name: str, machine: str, process: Process
) -> None:
    code, place = REPLACED[name]
    told = process.cell(f"import torch\nfrom functools import partial\n{machine}\n{code}")
    assert not told["outputs"], told["outputs"]
    message = process.check(
        "x = torch.tensor([1, 2])\nexpect.equal(x.tolist(), 'mine')\nexpect.equal(x.sum().item(), 'mine')"
    )
    assert message["restored"] == [place]
    assert saw(message) == [["list", [1, 2]], 3]
    assert process.check("expect.equal(1, 1)")["restored"] == []


def test_what_torch_puts_into_its_own_classes_is_no_change_and_what_a_cell_puts_there_is(process: Process) -> None:
    process.cell(
        "import torch\nnet = torch.nn.Linear(2, 2)\nsteps = torch.optim.AdamW(net.parameters())\n"
        "torch.compile(lambda x: net(x).sum(), backend='eager')(torch.ones(1, 2)).backward()\nsteps.step()"
    )
    assert process.check("expect.equal(1, 'mine')")["restored"] == []
    process.cell("torch.optim.AdamW.step = lambda self: None\ntorch.nn.Linear.forward = lambda self, x: x")
    found = process.check("expect.equal(1, 'mine')")["restored"]
    assert sorted(found) == ["torch.nn.modules.linear.Linear.forward", "torch.optim.adamw.AdamW.step"]
