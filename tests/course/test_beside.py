"""Libraries that no exercise needs, where a check runs them."""

from __future__ import annotations

import pytest

from fakegpu_lab.course.flags.beside import Beside

IN_AN_ANSWER = {
    "def f(x):\n    import sympy\n    return sympy.nsolve(x)": "sympy",
    "import rich.progress as bars\ndef f(x): return bars.Progress(x)": "rich",
    "f = lambda x: argparse.ArgumentParser()\nimport argparse": "argparse",
    "from torch import fx\nclass A:\n    def f(self): return fx.symbolic_trace(self)": "torch.fx",
    "import torch\ndef f(x):\n    with torch.autograd.graph.saved_tensors_hooks(a, b): pass": "torch.autograd.graph",
    "import torch\ndef f(x):\n    with torch.profiler.profile() as seen: pass": "torch.profiler",
}
BY_A_CELL_OF_ONES_OWN = {
    "import sympy\ndef helper(x): return sympy.nsolve(x)": "def f(x): return helper(x)",
    "import sympy\ndef deep(x): return sympy.nsolve(x)\ndef helper(x): return deep(x)": "f = helper",
    "import plotly\nmake = plotly.colors.hex_to_rgb": "def f(x):\n    return make(x)",
    "import argparse\nbox = Box()\nbox.parser = argparse.ArgumentParser()": "def f(x): return g().parser",
    "from rich.progress import Progress\nwith Progress() as bar: pass": "class A:\n    def f(self): bar.update(0)",
    "import yaml\nfor load in [yaml.safe_load]: pass": "f = [lambda text: load(text)][0]",
}
HONEST = [
    (
        "import matplotlib.pyplot as plt\ndef show(x): plt.plot(x)\nshow([1])\nx = plt.figure()",
        "def f(x): return x + 1",
    ),
    ("import pandas as pd\ntable = pd.DataFrame()", "import torch\ndef f(table): return torch.ones(len(table))"),
    (
        "import math, tqdm",
        "import math\nimport matplotlib.pyplot as plt\ny = f(1)\nplt.plot([y])\ndef f(x): return math.sqrt(x)",
    ),
    ("import hashlib", "def f(x): return x.figure + 1"),
]


def found(own: str, answer: str, used: tuple[str, ...] = ()) -> list[tuple[str, str]]:
    return list(Beside(used).flags([("own", own, False, False), ("answer", answer, True, False)]))


@pytest.mark.parametrize("text", IN_AN_ANSWER)
def test_a_function_of_an_answer_that_uses_such_a_library_is_flagged(text: str) -> None:
    told = found("", text)
    assert told
    assert all(cell == "answer" and IN_AN_ANSWER[text] in what for cell, what in told)
    assert not list(Beside(()).flags([("own", text, False, False)])), "nobody minds a cell of one's own"
    assert not found("", text, (f"{IN_AN_ANSWER[text]}.part",)), "nor what the lesson itself uses"


@pytest.mark.parametrize("own", BY_A_CELL_OF_ONES_OWN)
def test_also_by_way_of_what_a_cell_of_ones_own_has_made(own: str) -> None:
    assert [cell for cell, _ in found(own, BY_A_CELL_OF_ONES_OWN[own])] == ["answer"]


def test_also_by_a_name_that_the_lesson_has_imported() -> None:
    text = "def f(x):\n    with torch.autograd.graph.saved_tensors_hooks(a, b): pass"
    assert not list(Beside(()).flags([("answer", text, True, False)]))
    assert list(Beside((), {"torch": "torch"}).flags([("answer", text, True, False)]))


def test_also_by_way_of_a_file_that_was_handed_in() -> None:
    helper = "import sympy\ndef solve(x): return sympy.nsolve(x)"
    for answer in (
        "import helper\ndef f(x): return helper.solve(x)",
        "from helper import solve\ndef f(x): return solve(x)",
    ):
        texts = [("helper.py", helper, False, True), ("answer", answer, True, False)]
        assert [cell for cell, _ in Beside(()).flags(texts)] == ["answer"], answer


@pytest.mark.parametrize(("own", "answer"), HONEST)
def test_figures_and_tables_of_ones_own_are_not(own: str, answer: str) -> None:
    assert found(own, answer) == []
