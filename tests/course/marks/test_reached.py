"""Calls that can never run meet no expectation; every other one counts."""

from __future__ import annotations

import ast

import pytest

from fakegpu_lab.course.cell_text.reached import calls
from fakegpu_lab.course.expect.attempt import called


def reached(text: str, elsewhere: set[str] | None = None) -> bool:
    """Whether `sync` is called where it can run."""
    return any(ast.unparse(call.func).endswith("sync") for call in calls(ast.parse(text), elsewhere))


@pytest.mark.parametrize(
    "text",
    [
        "if False: sync()",
        "if 0: sync()\nelse: pass",
        "if True: pass\nelse: sync()",
        "if TYPE_CHECKING: sync()",
        "if not 1 < 2: sync()",
        "if 1 > 2 or None: sync()",
        "while 0: sync()",
        "for x in (): sync()",
        "for x in []: sync()",
        "for x in range(0): sync()",
        "[sync() for x in ()]",
        "[sync() for x in y if False]",
        "False and sync()",
        "x = 1 or sync()",
        "x = y if True else sync()",
        "def f():\n    return 1\n    sync()\nf()",
        "def f():\n    if x:\n        raise E\n        sync()\nf()",
        "for x in y:\n    continue\n    sync()",
        "while x:\n    break\n    sync()",
        "def f(): sync()",
        "def f():\n    sync()\n    f()",
        "def f(): g()\ndef g(): sync()\ndef h(): f()",
        "async def f(): sync()",
        "def __f(): sync()",
        "def f__(): sync()",
        "f = lambda: sync()",
        "class C:\n    def m(self): sync()",
        "def f():\n    def g(): sync()\nf()",
    ],
)
def test_dead_code_is_not_reached(text: str) -> None:
    assert not reached(text, set())


@pytest.mark.parametrize(
    "text",
    [
        "sync()",
        "a.b.sync()",
        "if x: sync()",
        "if x:\n    pass\nelse:\n    sync()",
        "if True: sync()",
        "if __debug__: sync()",
        "if 1 < x: sync()",
        "if (1, 2) < (1, x): sync()",
        "if 'a' < 1: sync()",
        "while True: sync()",
        "while 0: pass\nelse: sync()",
        "for x in (1, 2): sync()",
        "for x in (): pass\nelse: sync()",
        "for x in range(3): sync()",
        "for x in range(0, 3): sync()",
        "for x in sync(): pass",
        "[sync() for x in y]",
        "[x for x in sync()]",
        "True and sync()",
        "x = 0 or sync()",
        "x = sync() if True else y",
        "x = y(sync())",
        "f = [lambda: sync()]",
        "run(lambda: sync())",
        "a.b = lambda: sync()",
        "a = b = lambda: sync()",
        "f = lambda: sync()\nf()",
        "def f(): sync()\nf()",
        "def f(): sync()\nrun(f)",
        "def f(): sync()\nrun(globals()['f'])",
        "def f(): sync()\nmodule.f()",
        "def f(x=sync()): pass",
        "@sync()\ndef f(): pass",
        "@timed\ndef f(): sync()",
        "def f():\n    if x:\n        return 1\n    sync()\nf()",
        "def f():\n    for x in y:\n        break\n    sync()\nf()",
        "def f(): g()\ndef g(): sync()\nf()",
        "class C:\n    def m(self): sync()\nC().m()",
        "class C:\n    def forward(self): sync()\nC()",
        "class C:\n    sync()",
        "@timed\nclass C:\n    def m(self): sync()",
        "class C:\n    @sync()\n    def m(self): pass\nC()",
        "def __getattr__(name): sync()",
        "try:\n    pass\nexcept E:\n    sync()\nfinally:\n    pass",
        "with sync(): pass",
        "async def f(): sync()\nawait_(f())",
    ],
)
def test_everything_else_is(text: str) -> None:
    assert reached(text, set())


@pytest.mark.parametrize(
    ("text", "counts"),
    [
        ("class A:\n    def wait(self): return 1\na = A()\na.wait()", False),
        ("class A:\n    def wait(self): return 1\nA().wait()", False),
        ("a.wait = print\na = 1\na.wait()", False),
        ("def wait(): return 1\nwait()", False),
        ("def wait(): torch.cuda.wait()\nwait()", True),
        ("class A:\n    def wait(self): self.event.wait", False),
        ("def f(event): event.wait()\nf(1)", True),
    ],
)
def test_a_function_of_one_s_own_is_not_the_library_s(text: str, counts: bool) -> None:
    found = [name for name, _ in called(ast.parse(text), reached=True) if name.split(".")[-1] == "wait"]
    assert bool(found) is counts


def test_functions_may_be_called_from_elsewhere() -> None:
    text = "def f(): sync()"
    assert reached(text)
    assert reached(text, {"f"})
    assert not reached(text, {"g"})
    assert not reached("def f():\n    if False: sync()")
