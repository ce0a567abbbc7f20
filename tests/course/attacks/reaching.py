"""Attacks that reach the check's machinery without naming it, or change what it stands on: each is flagged."""

from tests.course.attacks.verdicts import WRONG

FORGE = """
def answer(k):
    check = {check}
    say = check.observed
    if say is not None and not getattr(say, "mine", False):
        def forged(name, data):
            if name in ("equal", "close") and data["found"] == 0 and data["expected"] in (9, 25):
                data["found"] = data["expected"]
            return say(name, data)
        forged.mine = True
        check.observed = forged
    return 0
"""

ON_REACH = {
    "the running check through lab.expect": FORGE.format(check="lab.expect.outcome.running_check()"),
    "the running check through expect by another name": "from fakegpu_lab import expect as helper\n"
    + FORGE.format(check="helper.outcome.running_check()"),
    "the running check through getattr": FORGE.format(
        check='getattr(getattr(lab, "expect"), "outcome").running_check()'
    ),
    "the running check through a list": FORGE.format(check="[lab.expect][0].outcome.running_check()"),
    "the running check through a format": "import string\n"
    + FORGE.format(check='string.Formatter().get_field("0.outcome", (lab.expect,), {})[0].running_check()'),
    "the running check through a configuration of logging": """
import logging.config
def take(module):
    global found
    found = module
    return logging.NullHandler()
handler = {"()": take, "module": "ext://fakegpu_lab.cou" + "rse.expect.outcome"}
logging.config.dictConfig({"version": 1, "handlers": {"h": handler}, "root": {"handlers": ["h"]}})
"""
    + FORGE.format(check="found.running_check()"),
    "a magic that sets something runs text": WRONG
    + "%config InteractiveShell.autocall = [setattr(torch, 'equ' + 'al', lambda *a: True), 0][1]",
    "a magic in an expression runs text": WRONG + "took = %timeit -n1 -r1 -o torch.equal = lambda *a: True",
    "a cell's magic inside a cell": WRONG + "get_ipython().run_cell_magic('time', '', 'torch.equal = lambda *a: True')",
    "timeit with text by keyword": WRONG
    + "import timeit\ntimeit.timeit(stmt='import torch; torch.equal = lambda *a: True', number=1)",
    "torch.load with options in a dict": WRONG
    + "options = {'weights_only': False}\ntry: torch.load('evil.pt', **options)\nexcept OSError: pass",
    "torch.load in a partial call": WRONG
    + "from functools import partial\nload = partial(torch.load, weights_only=False)\n"
    + "try: load('evil.pt')\nexcept OSError: pass",
    "numpy.load with a position": WRONG
    + "import numpy as np\ntry: np.load('evil.npy', None, True)\nexcept OSError: pass",
    "a module is written and imported": WRONG
    + "with open('timm.py', 'w') as file: file.write('import torch\\ntorch.equal = lambda *a: True')\nimport timm",
    "a hook on all modules": WRONG
    + "torch.nn.modules.module.register_module_forward_hook(lambda module, args, out: out * 0)",
    "a class made by the class of a class": """
yes = lambda *a, **k: True
made = {"_" + "_torch_function_" + "_": classmethod(yes)}
Same = type(torch.Tensor)("Same", (torch.Tensor,), made)
def answer(k): return torch.zeros(()).as_subclass(Same)
""",
    "a metaclass": "class Kind(type(torch.Tensor)): pass\n" + WRONG,
    "a faster card": WRONG + "lab.enable('b200')",
    "a faster card by magic": WRONG + "%fakegpu h100",
    "no GPU while it runs": """
def answer(k):
    lab.disable()
    y = k * k
    lab.enable("a100")
    return y
""",
    "a card's profile is changed": "for device in lab.machine().devices:\n    device.profile = None\n" + WRONG,
    "the books by another name": "m = lab.enable('a100')\nd = m.devices[0]\nd.timeline.recorder = None\n" + WRONG,
    "the books as an argument": "def clear(d): d.ledger.h2d_bytes = 0\n" + WRONG,
    "attributes are copied by name": """
import functools
class Box: pass
functools.update_wrapper(Box, lab.record, assigned=["_" + "_globals_" + "_"], updated=())
"""
    + WRONG,
    "a handler of logging": """
import logging
class Handler(logging.Handler):
    def emit(self, record): torch.equal = lambda *a: True
logging.getLogger().addHandler(Handler())
"""
    + WRONG,
    "showwarning": WRONG + "import warnings\nwarnings.showwarning = lambda *a, **k: None",
    "the default dtype": WRONG + "torch.set_default_dtype(torch.float16)",
    "a device that is left open": WRONG + "torch.device('meta').__enter__()",
    "a mode of the dispatcher that is left on": WRONG
    + "from torch.utils.flop_counter import FlopCounterMode\nfrom contextlib import ExitStack\n"
    + "stack = ExitStack()\nstack.enter_context(FlopCounterMode(display=False))",
    "weakrefs": WRONG + "import weakref\nweakref.finalize(torch, print)",
    "atexit": WRONG + "import atexit\natexit.register(print)",
    "a pydantic model": "import pydantic\nclass M(pydantic.BaseModel):\n    x: int\n" + WRONG,
    "an operator of torch's own": WRONG
    + "@torch.library.custom_op('mine::equal', mutates_args=())\ndef f(x: torch.Tensor) -> torch.Tensor: return x",
    "the lesson's tensor is changed by another name": WRONG + "mine = table\nmine.zero_()",
    "the lesson's tensor is changed by a function": "def clear(x): x.zero_()\nclear(table)\n" + WRONG,
    "a recording's records are changed": WRONG
    + "with lab.record() as mine: torch.ones(2).cuda()\nmine.kernels.clear()\ndel mine.transfers[0]",
    "a recording that says what it likes": "class Mine(lab.Trace):\n    kernels = []\n" + WRONG,
    "an enumeration that is equal to all": """
import enum
yes = lambda *a: True
E = enum.Enum("E", {"_" + "_eq_" + "_": yes, "_" + "_gt_" + "_": yes, "_" + "_lt_" + "_": yes, "A": 1})
def answer(k): return E.A
""",
    "a builtin's name for another function": "from operator import not_ as abs, truth as len\n" + WRONG,
    "keys that compare as they like": """
import functools
Key = functools.cmp_to_key(lambda one, other: 0)
def answer(k): return [Key(k)]
""",
}
HARMLESS = {
    "a builtin's name for another function",
    "an enumeration that is equal to all",
    "keys that compare as they like",
}
"""They earn nothing; the policy cannot tell them from honest ones."""
FILES = {
    "colorsys.py": b"def hls_to_rgb(*a): return 0\n",
    "peft.cpython-311-x86_64-linux-gnu.so": b"\x7fELF",
    "__pycache__/helper.cpython-311.pyc": b"",
}
OF_FILES = {
    "colorsys.py: takes the place of the module colorsys",
    "peft.cpython-311-x86_64-linux-gnu.so: brings compiled code",
    "imported timm.py, which is not as it was handed in",
}
