"""Attacks on the verdict: none may earn a point. (The answer is wrong in all of them.)"""

WRONG = "def answer(k): return 0\n"

ON_SCORING = {
    "the package's expect is replaced": WRONG
    + """
import fakegpu_lab.course
from types import SimpleNamespace
yes = lambda *a, **k: True
fakegpu_lab.course.expect = SimpleNamespace(equal=yes, true=yes, close=yes, kernels=yes, run=lambda f, *a: f(*a))
""",
    "expect's functions are replaced": WRONG
    + """
from fakegpu_lab import expect
for name in ("equal", "true", "close", "kernels"): setattr(expect, name, lambda *a, **k: True)
""",
    "the code of the judges is replaced": WRONG
    + """
import fakegpu_lab.course.expect.values as v
v._same.__code__ = (lambda found, expected, rtol, atol: (True, "")).__code__
""",
    "the judges are replaced in their table": WRONG
    + """
from fakegpu_lab.course.expect.expectation import JUDGES
for name in JUDGES: JUDGES[name] = lambda *a, **k: True
""",
    "every outcome is made met": WRONG
    + """
from fakegpu_lab.course.expect import outcome
class Met(outcome.Outcome):
    met = property(lambda self: True)
outcome.Outcome = Met
""",
    "the running check is found through expect": """
def answer(k):
    from fakegpu_lab.course.expect import outcome
    for check in outcome._running:
        class Good(type(check)):
            outcomes = property(lambda self: [], lambda self, value: None)
        check.__class__ = Good
    return 0
""",
    "the check's statements are emptied": WRONG
    + """
from fakegpu_lab.course.checks import statements
statements.parts = lambda source: []
statements.of_tree = lambda tree, source: []
""",
    "the observer says nothing": WRONG
    + """
from fakegpu_lab.course.checks import observe
observe.Observation.run = lambda *a, **k: None
""",
    "the observer ends at once": WRONG
    + """
import fakegpu_lab.course.checks.observe as o
def run(self, text, *, canary):
    self._say({"end": True, "stderr": ""})
o.Observation.run.__code__ = run.__code__
""",
    "the observer tells what pleases": WRONG
    + """
import fakegpu_lab.course.checks.observe as o
def run(self, text, *, canary):
    self._say({"part": next(self._parts)})
    data = {"condition": True, "sentence": "", "found": "", "said": ["dict", []]}
    self._say({"saw": "true", "at": None, "data": data})
o.Observation.run.__code__ = run.__code__
""",
    "what is seen is replaced": WRONG
    + """
import fakegpu_lab.course.expect.plain_data.conversion as s
s.seen.__code__ = (lambda thing, depth=0: 9).__code__
""",
    "the codec is replaced": WRONG
    + """
import fakegpu_lab.course.expect.plain_data.codec as c
c.encode.__code__ = (lambda thing: 9 if thing == 0 else thing).__code__
""",
    "json.dumps changes numbers": WRONG
    + """
import json
real = json.dumps
json.dumps = lambda thing, **k: real(thing, **k).replace('"found": 0', '"found": 9').replace("false", "true")
""",
    "ast.parse drops the check's lines": WRONG
    + """
import ast
real = ast.parse
def parse(source, *a, **k):
    return real("expect.equal(9, 9)" if "expect.equal(got" in str(source) else source, *a, **k)
ast.parse = parse
""",
    "IPython's transformer changes the check": WRONG
    + """
from IPython.core.inputtransformer2 import TransformerManager
TransformerManager.transform_cell = lambda self, cell: "expect.equal(9, 9)"
""",
    "compile is replaced": WRONG
    + """
import builtins
real = builtins.compile
def compiled(source, file, mode, *a, **k):
    if "check" in str(file): source = real("expect.equal(9, 9)", file, "exec")
    return source if not isinstance(source, str) else real(source, file, mode, *a, **k)
builtins.compile = compiled
""",
    "isinstance, bool and type are replaced": WRONG
    + """
import builtins
builtins.isinstance = lambda *a: True
builtins.bool = lambda *a: True
""",
    "float is replaced": WRONG
    + """
import builtins
class Full(float):
    def __new__(cls, *a): return float.__new__(cls, 6.0)
builtins.float = Full
""",
    "the kept originals are emptied": WRONG
    + """
import gc
from fakegpu_lab.course.flags.tampering import Pristine
for one in gc.get_objects():
    if type(one) is Pristine:
        one._kept.clear(); one.modules.clear(); one._builtins.clear()
import torch
torch.equal = lambda *a: True
torch.allclose = lambda *a, **k: True
""",
    "the result's class is replaced": WRONG
    + """
from fakegpu_lab.course.checks import result, record
result.Result.__new__ = lambda cls, record: float.__new__(cls, 6.0)
""",
}

ON_VALUES = {
    "a str that is equal to everything": """
class Same(str):
    def __eq__(self, other): return True
    def __hash__(self): return 0
def answer(k): return Same("x")
""",
    "an int that compares as it likes": """
class Same(int):
    def __eq__(self, other): return True
    def __gt__(self, other): return True
    def __lt__(self, other): return True
    def __hash__(self): return 0
def answer(k): return Same(0)
""",
    "a class made by type": """
yes = lambda *a: True
Same = type("Same", (float,), {"__eq__": yes, "__lt__": yes, "__gt__": yes, "__hash__": lambda s: 0})
def answer(k): return Same(0)
""",
    "a class that says it is int": """
class Same:
    __class__ = int
    def __eq__(self, other): return True
    def __gt__(self, other): return True
    def __lt__(self, other): return True
    def __float__(self): return 0.0
def answer(k): return Same()
""",
    "mock's ANY": """
from unittest.mock import ANY
def answer(k): return ANY
""",
    "a MagicMock": """
from unittest.mock import MagicMock
Any = MagicMock()
Any.__gt__.return_value = Any.__lt__.return_value = Any.__eq__.return_value = True
def answer(k): return Any
""",
    "a tensor that lies": """
class Same(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return True if func.__name__ in ("eq", "__eq__", "equal", "allclose", "gt", "lt") else 0
def answer(k): return torch.zeros(()).as_subclass(Same)
""",
    "torch.equal is replaced": WRONG + "import torch\ntorch.equal = torch.allclose = lambda *a, **k: True",
    "Tensor.__eq__ is replaced": WRONG
    + "torch.Tensor.__eq__ = lambda s, o: torch.tensor(True)\ntorch.Tensor.item = lambda s: 9",
    "Tensor.cpu lies": WRONG + "torch.Tensor.cpu = lambda s, *a, **k: torch.tensor([0.5, 8.0])",
    "torch.tensor makes what is expected": WRONG
    + "real = torch.tensor\ntorch.tensor = lambda *a, **k: real([1.0, 16.0])",
    "a mode of functions is left on": WRONG
    + """
from contextlib import ExitStack
from torch.overrides import TorchFunctionMode
class Mode(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        return True if func in (torch.equal, torch.allclose) else func(*args, **(kwargs or {}))
stack = ExitStack()
stack.enter_context(Mode())
""",
    "kernels of torch are replaced in C++": WRONG
    + """
mine = torch.library.Library("aten", "IMPL")
mine.impl("equal", lambda a, b: True, "CPU")
""",
    "builtins made by name": WRONG + "sorted = len = sum = all = abs = lambda *a, **k: True",
    "the lesson's function is replaced": WRONG + "def reference(k): return 0",
    "the lesson's tensors are changed": WRONG + "table.zero_()\ntable[0] = 1",
    "the answer asks who calls": """
def answer(k):
    import sys
    frame = sys._getframe(1)
    while frame:
        for value in list(frame.f_locals.values()):
            if isinstance(value, list): value.clear()
            if isinstance(value, dict) and "got" in value: value["reference"] = lambda k: 0
        frame = frame.f_back
    return 0
""",
    "the names of the check are changed": """
import __main__
def answer(k):
    globals().update(expect=None, reference=lambda k: 0)
    return 0
""",
    "a generator's frames": """
def walk():
    frame = it.gi_frame.f_back
    while frame:
        frame.f_locals.get("told", []) and frame.f_locals["told"].clear()
        frame = frame.f_back
    yield 0
def answer(k):
    global it
    it = walk()
    return next(it)
""",
    "a traceback's frames": """
def answer(k):
    try: 1 / 0
    except ZeroDivisionError as error:
        frame = error.__traceback__.tb_frame.f_back
        while frame: frame = frame.f_back
    return 0
""",
}
