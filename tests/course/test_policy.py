"""What is flagged in a submission's text, and what is not: every way of running text, every position of a name."""

from __future__ import annotations

import pytest

from fakegpu_lab.course.flags.policy import UNREADABLE, Policy

LESSON = """import torch
from numba import cuda
import fakegpu_lab as lab
lab.enable("a100")
model = torch.nn.Linear(4, 4)
table = torch.arange(4)
def reference(k): return k * k
"""
FLAGGED = {
    "memory that is taken from a tensor": "def f(p): p.untyped_storage().resize_(0)",
    "the seed that a check has drawn": "def f(): return torch.initial_seed()",
    "another name of a method": "class A:\n    def put(self, v): self.elapsed = v\n    place = put\nA.place(model, 1)",
    "a method in a pair": "class A:\n    def put(self, v): self.elapsed = v\n    def no(self): pass\n"
    "    place, other = put, no\nA.place(model, 1)",
    "collections that come later": "import gc\ngc.disable()",
    # classes that recordings are of, and others that are reached through what they are given to
    "a class of recordings by max": "import fakegpu_lab as lab\nk = max([lab.Trace], key=id)\n"
    "setattr(k, 'elapsed', property(lambda self: 0))",
    "a class in a dictionary": "d = {'a': torch.nn.Linear}\nd['a'].elapsed = 0",
    "a class in a deque": "from collections import deque\ndeque([torch.nn.Linear])[0].elapsed = 0",
    "a copy of a class": "import copy\ncopy.copy(torch.nn.Linear).elapsed = 0",
    "a class by cast": "from typing import cast\ncast(object, torch.nn.Linear).elapsed = 0",
    "a class by get": "{}.get('a', torch.nn.Linear).elapsed = 0",
    "a class that is compiled": "torch.compile(torch.nn.Linear).elapsed = 0",
    # text that is run
    "exec by another name": "import enum\nenum.bltns.exec('torch.equal = 1')",
    "builtins of a library": "import dataclasses\ndataclasses.builtins.exec('1')",
    "importlib of torch": "import torch.nn.functional as F\nF.importlib.import_module('os')",
    "a module of a star": "from torch.nn.functional import *\nimportlib.import_module('os')",
    "timeit's Timer": "import timeit\ntimeit.Timer('torch.equal = lambda *a: True').timeit(1)",
    "timeit's main": "import timeit\ntimeit.main(['torch.equal = 1'])",
    "benchmark.Timer": "from torch.utils.benchmark import Timer\nTimer(stmt='exec(\"1\")').timeit(1)",
    "a text that is put together": "import timeit\ntimeit.timeit('to' + 'rch')",
    "a module of a star by another name": "from torch.nn.functional import *\nf = importlib\nf.import_module('os')",
    "a module of a star that is bound, too": "from torch.nn.functional import *\nif 0: importlib = 1\n"
    "importlib.import_module('os')",
    "sympify": "import sympy\nsympy.sympify('__import__(\"os\")')",
    "parse_expr": "from sympy.parsing.sympy_parser import parse_expr\nparse_expr('1')",
    "get_type_hints": "import typing\nclass A: x: 'int'\ntyping.get_type_hints(A)",
    "a text annotation": "class A:\n    x: '__import__(\"os\")'",
    "a text annotation of a parameter": "def f(x: 'exec(1)') -> 'globals()': pass",
    "singledispatch": "from functools import singledispatch",
    "simplify in a library's part": "import sympy\nsympy.core.sympify.sympify('1')",
    "yaml's loader": "import yaml\nyaml.CUnsafeLoader('a').get_single_data()",
    "yaml's loader in a part": "import yaml\nyaml.loader.UnsafeLoader('a').get_single_data()",
    "get_annotations": "import typing_extensions\ntyping_extensions.get_annotations(f, eval_str=True)",
    "yaml.load": "import yaml\nyaml.load('!!python/object/apply:os.getpid []', Loader=yaml.UnsafeLoader)",
    "a format of a bar": "from tqdm import tqdm\ntext = bytes(9).decode()\ntqdm(bar_format=text)",
    "a format of a bar in a dict": "from tqdm import tqdm\ntqdm(**{'bar_format': text})",
    "a format of pieces, whoever takes it": "take('{x.gi_' + part)",
    "a format of joined pieces": "parts = ['{x.', part]\ntake(''.join(parts))",
    "a format in an f-string": "take(f'{{{part}}}')",
    "a format by a percent sign": "take('{x.gi_%s}' % part)",
    "a format by replacing": "t = '{x.ABC}'\ntake(t.replace('ABC', part))",
    "a format of an axis": "from matplotlib.ticker import StrMethodFormatter\ndef f(t): StrMethodFormatter(t)",
    "a format of an axis, by a method": "def f(t): axis.set_major_formatter(t)",
    "a format of logging, by place": "import logging\nlogging.Formatter(bytes(1).decode(), None, '{')",
    "an attribute of a class that solutions set of objects": "type(lab.machine()).training = 1",
    "timeit as a value": "import timeit\nlist(map(timeit.timeit, [text]))",
    "timeit in part": "import functools, timeit\nfunctools.partial(timeit.timeit, number=1)",
    "timeit under a decorator's sign": "import timeit\n@timeit.timeit\n@text\ndef f(): pass",
    "a signature of numba's": "from numba import cuda\nimport numba\nnumba.njit(text)",
    "a signature of a kernel": "from numba import cuda\ncuda.jit(text)",
    "a text above a function": "from numba import cuda\n@cuda.jit\n@text\ndef f(): pass",
    "getattr of a library": "b.getattr(1, text)",
    "globals of a library": "b.globals()",
    "a shell by another name": "shell.run_cell(text)",
    "another command after %pip": "get_ipython().run_line_magic('pip', '--version; ls')",
    "another command after %conda": "get_ipython().run_line_magic('conda', 'list > x')",
    "pandas' eval": "import pandas as pd\npd.eval('1')",
    "a frame's query": "import pandas as pd\npd.DataFrame({'a': [1]}).query('@exec(1)')",
    "TorchScript of text": "torch.jit.CompilationUnit('def f(): return 1')",
    "torch.fx": "import torch.fx",
    "pickle": "import pickle\npickle.loads(b'')",
    "breakpoint with a text": "breakpoint('exec(1)')",
    "pdb.run": "import pdb\npdb.run('torch.equal = 1')",
    "logging.config": "import logging.config",
    # names in every position
    "a class pattern": "match lab.record():\n    case object(_inner=value): pass",
    "a class pattern with a frame": "match (x for x in ()):\n    case object(gi_frame=frame): pass",
    "a keyword": "lab.record(_started=1)",
    "getattr's text": "getattr(torch.ones(1), '_' + 'inner')",
    "getattr's plain text": "getattr(torch.ones(1), '_inner')",
    "getattr as a value": "import functools\nfunctools.reduce(getattr, ['a'], torch)",
    "attrgetter": "import operator\noperator.attrgetter('_inner')",
    "a format string": "'{0.gi_frame.f_back}'.format((x for x in ()))",
    "a format string with a private name": "'{0._inner}'.format(torch.ones(1))",
    "a format string that is put together": "('{0.gi_fr' + 'ame}').format((x for x in ()))",
    "a format string by format_map": "'{x.__class__}'.format_map({'x': 1})",
    "the machine of a recording": "with lab.record() as t: pass\ndef of(t): return t.machine",
    "an attribute of what a function passes on": "def me(x): return x\nfor s in found: me(s).end = 0",
    "an attribute of what a lambda passes on": "me = lambda x: x\ndef f(s): me(s).end = 0",
    "an attribute of what a function has found": "def me(): return model\nme().training_steps = 0",
    "a hook on all optimizers": "from torch.optim.optimizer import register_optimizer_step_post_hook as f\nf(print)",
    "another lesson": "%lesson mine",
    "another object's __init__": "import argparse\nargparse.Namespace.__init__(model, forward=f)",
    "an __init__ that a library wrote": "from dataclasses import dataclass\n@dataclass\nclass H:\n    forward: int\n"
    "H.__init__(torch.nn.Linear, f)",
    "parse_args as a value": "import argparse\nfill = argparse.ArgumentParser().parse_args",
    "attributes that are copied into another object": "import functools\nfunctools.wraps(holder)(model)",
    "torch's own private methods, of self": "class A(torch.nn.Module):\n"
    "    def f(self): self._register_state_dict_hook(g)",
    "torch's own tables, of self": "class A(torch.nn.Module):\n    def f(self): return self._parameters",
    "ranks where the lesson has none": "lab.run_ranks(print, 8)",
    "getattr with what is put together": "def f(g): return getattr(*(g, '_' + '_globals__'))",
    "a class by type with what is put together": "type(*('A', (list,), {}))",
    "a file that is loaded with what is put together": "import torch\ntorch.load(*given)",
    "a method of a list under if": "class L(list):\n    if True:\n        def __getitem__(self, at): return 1",
    "a method of a list by an error's name": "class L(list):\n    try: pass\n    except ValueError as keys: pass",
    "a method of a tensor that the answer made": "out = torch.ones(3)\nout.detach = lambda: torch.zeros(3)",
    "a method of a tensor, by its name": "out = torch.ones(3)\nsetattr(out, 'std', lambda: 1)",
    "a method of a function, copied": "def f(): pass\nf.detach = 3",
    "a library's traceback": "import rich.traceback",
    "what pandas evaluates": "import pandas\npandas.core.computation.eval.eval('1')",
    "a library's own helpers": "from plotly import optional_imports",
    "a private import": "from torch import _C",
    "a private name of ours that a class of one's own has, too": "class A:\n    def f(self): return self._recorders\n"
    "def g(x): return x._recorders",
    "a private name of torch's that a class of one's own has, too": "class A:\n    def f(self): self._parameters = {}\n"
    "def g(x): x._parameters",
    "a private name of torch's in a field": "class A:\n    _backward_hooks = None\ndef g(x): return x._backward_hooks",
    "an import under a private name": "import torch as _torch\n_torch._C",
    "IPython's history": "_ih[-1]",
    "a star import of this package": "from fakegpu_lab import *",
    "a star import of what is not known": "from seaborn import *",
    # what is not on the list
    "os of torch": "torch.os.fork()",
    "sys of a library": "import statistics\nstatistics.sys.modules",
    "collect_env": "from torch.utils.collect_env import run\nrun('id')",
    "psutil": "import psutil",
    "string.Formatter": "import string\nstring.Formatter().get_field('0.x', (1,), {})",
    "make_dataclass": "from dataclasses import make_dataclass",
    "inspect": "import inspect",
    "an audit hook": "import sys\nsys.addaudithook(print)",
    "garbage": "import gc\ngc.get_objects()",
    "a module that is passed on": "f = lambda m: m\nf(torch)",
    "hooks on all modules": "torch.nn.modules.module.register_module_forward_hook(print)",
    "vars": "vars(lab)",
    # what the answer did not make
    "a method on type(x)": "type(torch.ones(1)).item = lambda self: 9",
    "a method on type(x) by another name": "T = type(torch.ones(1))\nT.item = lambda self: 9",
    "a method on type(x) in a loop": "for T in [type(torch.ones(1))]:\n    T.item = lambda self: 9",
    "a method on type(x) by setattr": "setattr(type(torch.ones(1)), 'item', lambda self: 9)",
    "a method on type(x) in a list": "[T := type(torch.ones(1))]\nT.equal = print",
    "an attribute of a parameter": "def change(thing):\n    thing.profile = None\nchange(lab.machine())",
    "a library's function": "torch.equal = lambda *a: True",
    "a library's function by another name": "t = torch\nt.equal = lambda *a: True",
    "the lesson's function": "reference.calls = 9",
    "a replaced forward": "net = model\nnet.forward = lambda x: x",
    "a replaced forward in a list": "for net in [model]:\n    net.forward = lambda x: x",
    # what the lesson made and a check reads
    "zeroed weights": "model.weight.data.zero_()",
    "a hook on a node of the lesson's weights": "for w in model.parameters():\n"
    "    torch.autograd.graph.get_gradient_edge(w).node.register_prehook(lambda g: g)",
    "a class that any object is of": "import abc\nclass Any(abc.ABC):\n    x: int\nAny.register(type(model))",
    "an enumeration that is put into a module": "import enum\nenum.global_enum(enum.IntEnum('A', 'B', module='torch'))",
    "another object's attributes": "import functools\nfunctools.update_wrapper(model, torch.nn.Linear(4, 4))",
    "a name that is bound in a timed line": "_ = %time model = torch.nn.Linear(4, 4)",
    "zeroed weights by a function of torch's": "torch.nn.init.zeros_(model.weight)",
    "weights as an output": "torch.zeros(4, 4, out=model.weight.data)",
    "the lesson's statement, and then others": "model = torch.nn.Linear(4, 4)\ntorch.nn.init.zeros_(model.weight)",
    "zeroed weights by another name": "net = model\nfor p in net.parameters():\n    p.data.zero_()",
    "zeroed weights in a container": "nets = {'a': model}\nnext(iter(nets.values())).weight.data.fill_(0)",
    "zeroed weights by a function": "def wipe(net):\n    for p in net.parameters(): p.zero_()\nwipe(model)",
    "loaded weights": "net = model\nnet.load_state_dict({})",
    "a hook": "[m for m in [model]][0].register_forward_hook(lambda *a: a[2] * 0)",
    "items": "mine = table.view(2, 2)\nmine[0] = 9",
    "a case's name": "match [model]:\n    case [net]:\n        net.load_state_dict({})",
    # lines of IPython's
    "braces in a magic": "get_ipython().run_line_magic('who', 'x{print(1)}')",
    "a dollar in a magic": "get_ipython().run_line_magic('hint', '$text')",
    "braces in a command": "get_ipython().system('echo {print(1)}')",
    "an option that is Python": "get_ipython().run_line_magic('time', '-exec(text)')",
    "a comprehension in a setting": "get_ipython().run_line_magic('config', 'InlineBackend.rc = [0 for x.y in [f]]')",
    # what libraries read of classes
    "an array's memory": "class A:\n    __array_interface__ = {'data': (id(x), False)}",
    "an array's ufuncs": "import numpy as np\nclass A(np.ndarray):\n    __array_ufunc__ = lambda *a, **k: True",
    "a pattern's names": "class A:\n    __match_args__ = ('gi_' + 'frame',)",
    "annotations that are run": "class A:\n    __annotations__ = {'a or exec(text)': int}",
    "setattr under another name": "class A:\n    __setattr__ = print",
    "what a method reaches, by name": "class A:\n    def get(self, name): return getattr(self.thing, name)",
    "another first parameter, by name": "class A:\n    def get(me, name): return getattr(me, name)",
    "a free function's self": "def get(self, name): return getattr(self, name)\nget(x, 'gi_' + 'frame')",
    # what copies, sets or formats attributes by their names
    "a format string that a name stands for": "t = '{0.gi_fr' + 'ame}'\ng = (x for x in ())\nt.format(g)",
    "a format string of pieces": "t = ''.join(['{0.gi_', 'frame}'])\nt.format((x for x in ()))",
    "a format string of a loop": "for n in range(3):\n    t = '{0' + '.gi_fr' * n + '}'\n    t.format(lab)",
    "a format string that is a parameter": "def show(t, x): return t.format(x)\nshow('{0.gi_' 'frame}', 1)",
    "a format string that a class holds": "class A:\n    t = '{0.gi_' + part\nA.t.format(1)",
    "a format string that an object holds": "class A:\n    def __init__(self, t): self.text = t\n"
    "    def show(self, x): return self.text.format(x)",
    "a format string that grows": "t = '{0'\nt += '.gi_' 'frame}'\nt.format(1)",
    "a format string in f": "a = 'gi_' + 'frame'\nf'{{0.{a}}}'.format(1)",
    "str.format": "str.format('{0.gi_' + part, 1)",
    "str.format as a value": "[*map(str.format, ['{}'], [1])]",
    "a bound format": "f = ('{0.gi_' + part).format\nf(1)",
    "a format string of logging": "import logging\nlogging.Formatter('{args[0].gi_' + part, style='{')",
    "update_wrapper with positions": "import functools\nfunctools.update_wrapper(T(), x, [name], [])",
    "update_wrapper in part": "import functools\nf = functools.partial(functools.update_wrapper, T(), x)",
    "wraps with positions": "from functools import wraps\nwraps(x, [name], [])(T())",
    "a namespace of arguments": "import argparse\nargparse.ArgumentParser().parse_args(['a'], lab.machine())",
    # methods on what is no object of their class
    "a method by its class": "class A:\n    def put(thing, v): thing.observed = v\nA.put(check, 1)",
    "a method by its class, before it is written": "def go(check): A.put(check, 1)\n"
    "class A:\n    def put(self, v): self.observed = v",
    "a method by its class's other name": "class A:\n    def put(self, v): self.observed = v\nB = A\nB.put(check, 1)",
    "a method by the type of an object": "class A:\n    def put(self, v): self.observed = v\ntype(A()).put(check, 1)",
    "a method as a value": "class A:\n    def get(self): return self._x\n[*map(A.get, [check])]",
    "a static method": "class A:\n    @staticmethod\n    def put(thing, v): thing.observed = v\nA().put(check, 1)",
    "a method under an own decorator": "def on(f): f(lab.machine(), 1)\nclass A:\n    @on\n"
    "    def put(thing, v): thing.observed = v",
    "another self": "class A:\n    def put(self, thing):\n        self = thing\n        self.observed = 1",
    "a loop's self": "class A:\n    def put(self, things):\n        for self in things: self.observed = 1",
    "an inner function's self": "class A:\n    def put(self, thing):\n        def inner(self): self.observed = 1\n"
    "        inner(thing)",
    "a free function's self, by attribute": "def get(self): return self._inner\nget(x)",
    "what an object holds": "class A:\n    def __init__(self, thing): self.thing = thing\n"
    "    def put(self, v): self.thing.observed = v\nA(lab.machine()).put(1)",
    "what an object holds, privately": "class A:\n    def __init__(self, thing): self.thing = thing\n"
    "    def get(self): return self.thing._secret",
    # classes that claim
    "a list": "class Same(list):\n    def __getitem__(self, i): return 9",
    "a dict": "from collections import UserDict\nclass Same(UserDict):\n    def keys(self): return []",
    "a number": "class Same(int):\n    def __eq__(self, other): return True",
    "a class by a metaclass's call": "from abc import ABCMeta\nABCMeta('Same', (float,), {'__eq__': lambda *a: True})",
    "a metaclass": "from enum import EnumMeta\nclass Kind(EnumMeta): pass",
}
FLAGGED |= {
    # modules, and what matters of them, where they are not followed
    "a module that is put into a list": "import math\nbox = [0]\nbox[0] = math",
    "a module that an object holds": "import math\nclass A: pass\na = A()\na.held = math",
    "a module in a class": "import math\nclass A: tools = math",
    "a module imported in a class": "class A:\n    import math as tools",
    "a module by an own print": "import math\ndef print(x): return x\nprint(math)",
    "a class of a decorator": "from numba import cuda\nclass A(cuda.jit): pass",
    "a module of a parameter's name": "def f(glob):\n    import glob\n    return max(glob)",
    "a module of an inner variable's name": "import glob\ndef f():\n    def g(): glob = 1\n    return max(glob)",
    "a module of a later variable's name": "import glob\nmax(glob)\nglob = 1",
    "a module of a sometimes other name": "import glob\nif not glob: glob = 1\nmax(glob)",
    "a module of a module in a list": "import math\nclass A: pass\nA.x = [math]",
    "a name of two modules": "import sys\nsystem = sys\nsystem.modules\nsystem = torch",
    "a name of two modules, by imports": "import sys as m\nm.modules\nimport math as m",
    "enable in a list": "box = [0]\nbox[0] = lab.enable",
    "torch.load in part": "import functools\nfunctools.partial(torch.load, **{'weights' + '_only': False})",
    "the lesson's model in a list": "box = [0]\nbox[0] = model\nbox[0].forward = lambda x: x",
    "the lesson's model in a growing list": "box = []\nbox.append(model)\nbox[0].forward = lambda x: x",
    "hooks of weights": "[one.register_hook(lambda g: g * 0) for one in model.parameters()]",
    "a proxy that sets attributes": "import tqdm\ntqdm.utils.ObjectWrapper(model).forward = lambda x: x",
    "names that dataclasses write": "class A:\n    __annotations__['x, exec(1)'] = int",
    "names that dataclasses write, later": "class A: pass\na = A.__annotations__\na['x, exec(1)'] = int",
    # formats of libraries
    "a column of a bar": "from rich.progress import TextColumn\ndef f(t): return TextColumn(t)",
    "a meter of a bar": "import tqdm\ndef f(t): return tqdm.tqdm.format_meter(0, 1, 1.0, bar_format=t)",
    "a meter of a bar, by place": "import tqdm\ndef f(t): return tqdm.tqdm.format_meter(0, 1, 1.0, 80, '', False, t)",
    "a style in a dict": "import logging\nlogging.basicConfig(format='x', **{'sty' + 'le': '{'})",
    "an own formatter": "import logging\nclass A(logging.Formatter): pass\ndef f(t): return A(t, None)",
}
AS_IT_RUNS = {
    "a magic in brackets": "%%exercise first\nmemit = 3\njunk = (5\n%memit -1)\nimport inspect",
    "a magic in a text": '%%exercise first\n"""Notes\n%time -n"""\nimport inspect',
    "a magic in a continued text": '"a\\\n%timeit -x"\nimport inspect',
    "magics within magics": "%%capture\n%%time\n%%exercise first\n%time import inspect",
    "the line of a timed cell": "%%timeit -n1 import inspect\npass",
    "options at the end": "%time x = 3; import inspect --no-raise-error",
    "a block of magics": "if True:\n    %time import inspect",
}
HONEST = {
    "whether an event is done": "e = torch.cuda.Event()\ne.query()\ntorch.cuda.current_stream().query()",
    "another name of a method, of its own objects": "class A:\n    def put(self, v): self.elapsed = v\n"
    "    place = put\na = A()\na.place(1)\nA.place(a, 1)",
    "types of recordings": "import fakegpu_lab as lab\ndef f(trace: lab.Trace, other: 'lab.Trace') -> lab.Trace:\n"
    "    assert isinstance(trace, lab.Trace)\n    return trace",
    "attributes of what a call made": "from torch import nn\nfrom collections import OrderedDict\n"
    "net = nn.Sequential(OrderedDict(a=nn.Linear(2, 2)))\nnet.name = 'mine'\nnet[0].title = 'first'\n"
    "best = max([nn.Linear(2, 2), nn.Linear(3, 3)], key=len)\nbest.title = 'best'\n"
    "y = torch.relu(torch.ones(2))\ny.note = 1\nz = torch.stack([y, y])\nz.register_hook(print)",
    "a module's other name": "nn = torch.nn\nnn = torch.nn\nnn.Linear(2, 2)\nprint(torch, type(torch))\n"
    "def f():\n    F = torch.nn.functional\n    return F.relu(torch.ones(2))",
    "a name of a module and of its function": "import time\ntime.perf_counter()\nfrom time import time\ntime()",
    "an own formatter": "import logging\nclass A(logging.Formatter):\n"
    "    def format(self, record): return record.getMessage()\nA('%(message)s')\n"
    "logging.basicConfig(format='%(message)s')",
    "things in lists": "nets = []\nnets.append(torch.nn.Linear(2, 2))\nnets[0].weight.data.zero_()\n"
    "seen = {}\nfor name, p in model.named_parameters(): seen[name] = p.detach().clone()\nseen.clear()",
    "another thing of a module's name": "import random as chance\nimport glob\nglob = [torch.ones(2)]\nlist(glob)\n"
    "def f(chance):\n    glob = [chance]\n    return max(glob, chance)\n(lambda glob: max(glob, 1))(2)",
    "logging with braces": "import logging\nlogging.basicConfig(format='{levelname}: {message}', style='{')",
    "magics": "%%exercise first\n\n%time y = 3\nfor n in range(2):\n    %timeit -n 1 -r1 -q n + 1\nz = %time y",
    "braces that are shown": "k = 3\nprint(f'{{{k}}}', '{')\nax.set_title(f'$10^{{{k}}}$')\n'{a text'",
    "a bar's format": "from tqdm import tqdm\ntqdm(range(3), bar_format='{l_bar}{bar}| {n_fmt}/{total_fmt}')\n"
    "axis.set_major_formatter('{x:.0f} ms')\naxis.set_major_formatter(lambda x, place: f'{x}')",
    "kernels": "from numba import cuda, float32\n@cuda.jit\ndef f(x): pass\n@cuda.jit(device=True)\ndef g(x): pass\n"
    "@cuda.jit('void(float32[:])')\ndef h(x): cuda.shared.array(4, float32)\nk = cuda.jit(f)",
    "pip": "get_ipython().run_line_magic('pip', 'install -q tabulate')",
    "options of timeit": "get_ipython().run_line_magic('timeit', '-n 3 -r2 -q torch.ones(2)')",
    "a dict after time": "get_ipython().run_line_magic('time', 'print({1: 2})')",
    "sharper plots": "get_ipython().run_line_magic('config', \"InlineBackend.figure_format = 'retina'\")",
    "attributes by name, of its own": "class A:\n    def __init__(self, **given):\n"
    "        for name, value in given.items(): setattr(self, name, value)",
    "a counter on an own function": "def f(): f.calls += 1\nf.calls = 0",
    "attributes of one's own classes that are called as a tensor's methods": "class Stats:\n"
    "    def __init__(self): self.size, self.mean = 3, 2\nstats = Stats()\nstats.max = 4\nsetattr(stats, 'sum', 3)",
    "attributes of what functions of one's own make": "class A: pass\ndef make(): return A()\nmake().x = 1\n"
    "def same(x): return x\nsame(make()).y = 2\ndef again(n): return again(n - 1) if n else A()\nagain(3).z = 1\n"
    "def pair():\n    a = A()\n    return a, 3\nb, c = pair()\nb.w = 3",
    "private names of a module of one's own": "class A(torch.nn.Module):\n"
    "    def __init__(self):\n        super().__init__()\n        torch.nn.Module.__init__(self)\n"
    "        self._count = 1\n"
    "    def f(self): return self._count",
    "libraries of figures and tables": "import plotly.express as px, pandas as pd, matplotlib.pyplot as plt\n"
    "from rich.table import Table\nfrom einops.layers.torch import Rearrange\nfrom scipy import stats\n"
    "px.bar(pd.DataFrame({'a': [1]}), color_discrete_sequence=px.colors.qualitative.Plotly)\n"
    "plt.cm.viridis(0.5); plt.rcParams['axes.grid'] = True; stats.norm.pdf(0)",
    "private names of objects of one's own": "class Watch:\n    def __enter__(self):\n        self._parameters = 3\n"
    "        return self\n    def same(self, other): return self._mine == other._mine\nwatch = Watch()\n"
    "with Watch() as other: pass\nprint(watch._parameters, other._parameters)",
    "own private names": "_width = 3\ndef _helper(x): return x * _width\n_helper(2)",
    "an own class": "class A:\n    def __init__(self): self._x = 1; self.y = 2\na = A()\na.y = 3\na.z = a._x",
    "a context manager": "from contextlib import contextmanager\n@contextmanager\ndef timed():\n    yield\n"
    "with timed(): pass",
    "autograd's context": "class F(torch.autograd.Function):\n    @staticmethod\n    def forward(ctx, x):\n"
    "        ctx.scale = 2\n        return x * 2\n    @staticmethod\n    def backward(ctx, g): return g * ctx.scale",
    "an optimizer's own": "mine = torch.nn.Linear(2, 2)\nfor p in mine.parameters():\n"
    "    p.data.mul_(0.5); p.grad = None",
    "frozen layers": "for p in model.parameters():\n    p.requires_grad = False",
    "learning rates": "opt = torch.optim.SGD(model.parameters(), lr=1)\nopt.param_groups[0]['lr'] = 0.1",
    "timeit of a function": "import timeit\ntimeit.timeit(lambda: sum(range(9)), number=2)",
    "timeit of a text": "import timeit\ntimeit.timeit('sum(range(9))', number=2)",
    "benchmark.Timer": "from torch.utils import benchmark\n"
    "benchmark.Timer('x @ x', globals={'x': torch.ones(2, 2)}).timeit(2)",
    "logging": "import logging\nlogging.basicConfig(level=logging.INFO)\nlog = logging.getLogger(__name__)\n"
    "log.info('x %s', 1)",
    "early stars": "from math import *\nfrom torch.nn import *\nfrom torch import *\nprint(pi, Linear(2, 2), ones(2))",
    "a star that brings modules": "from torch.nn.functional import *\nfrom torch.nn import *\n"
    "math.ceil(1.5); torch.ones(2)\nattention = torch.ones(2)\nprint(max(attention))\nrelu(attention).sum()",
    "a debugger's flag": "if __debug__: print('debug')",
    "annotations": "from typing import Optional\n"
    "def f(x: 'torch.Tensor', y: Optional[int] = None) -> 'list[int]': return []",
    "pdb": "import pdb",
    "a guarded breakpoint": "DEBUG = False\nif DEBUG: breakpoint()",
    "a pattern": "match (1, 2):\n    case (a, b): print(a + b)",
    "a dataclass": "from dataclasses import dataclass, field, asdict\n@dataclass\nclass A:\n"
    "    x: list = field(default_factory=list)\nasdict(A())",
    "an enumeration": "import enum\nclass Kind(enum.Enum):\n    A = enum.auto()\nKind.A.value",
    "an own list": "class Batches(list):\n    def first(self): return self[0]",
    "format strings": "'{:>8} {0} {x.shape} {1[a]}'.format(1, {'a': 2}, x=torch.ones(2))",
    "format strings in many ways": "import pandas as pd\nrows = ['{:<8}', '{:>8}']\nfor row in rows: row.format(1)\n"
    "('{:>4}' * 3).format(1, 2, 3)\nhead = '{:<8}' + '{:>9}'\nhead.format(1, 2)\n"
    "pd.DataFrame().style.format('{:.1f}')\n"
    "forms = {'ms': '{:.1f} ms'}\nforms['ms'].format(2)\nstr.format('{:>3}', 1)\n'{a}'.format_map({'a': 1})",
    "a wrapper": "import functools\ndef timed(f):\n    @functools.wraps(f)\n    def inner(*a, **k): return f(*a, **k)\n"
    "    return inner\ndef other(f):\n    def inner(*a): return f(*a)\n"
    "    return functools.update_wrapper(inner, f)",
    "arguments": "import argparse\nargs = argparse.ArgumentParser().parse_args([])",
    "classes in many ways": "class A:\n    made = 0\n    def __init__(self, x): self._x, self.y = x, [x]\n"
    "    @property\n    def x(self): return self._x\n    @x.setter\n    def x(self, v): self._x = v\n"
    "    @classmethod\n    def of(cls, x):\n        cls.made += 1\n        return cls(x)\n"
    "    @staticmethod\n    def plain(x): return x + 1\n    @torch.no_grad()\n    def step(self): self.y = 2\n"
    "class B(A):\n    def __init__(self, x):\n        A.__init__(self, x)\n        self.z = super()._x\n"
    "b = B(1)\nA.step(b)\n[*map(A.plain, [1])]\nsorted([b], key=lambda one: one.y)",
    "tied weights": "class Net(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n"
    "        self.embed = torch.nn.Embedding(9, 4)\n        self.head = torch.nn.Linear(4, 9, bias=False)\n"
    "        self.head.weight = self.embed.weight\n    def forward(self, x): return self.head(self.embed(x))",
    "yaml and sympy": "import yaml, sympy\nyaml.safe_load('a: 1')\nx = sympy.symbols('x')\nsympy.simplify(x + x)",
    "a template": "row = '{:<8}{:>8}'\nprint(row.format('a', 1))",
    "torch in many ways": "import torch.nn.functional as F\nfrom torch.utils.data import DataLoader, TensorDataset\n"
    "from torch.utils.checkpoint import checkpoint\nfrom torch.nn.parallel import DistributedDataParallel as DDP\n"
    "torch.cuda.memory_stats(); torch.linalg.norm(torch.ones(2)); torch.backends.cudnn.benchmark = True\n"
    "with torch.autocast('cuda', dtype=torch.bfloat16): F.relu(torch.ones(2))\n"
    "torch.cuda.amp.GradScaler; torch.profiler.ProfilerActivity.CUDA; torch.testing.assert_close(1, 1)",
    "distributed": "import torch.distributed as dist\ndist.all_reduce; dist.ReduceOp.SUM\n"
    "from torch.distributed.fsdp import fully_shard\nfrom torch.distributed.device_mesh import init_device_mesh",
    "numpy": "import numpy as np\nnp.random.default_rng(0).normal(size=2); np.linalg.norm(np.ones(2)); np.float32(1)",
    "a plot": "import matplotlib.pyplot as plt\nplt.rcParams['figure.dpi'] = 80\nfig, ax = plt.subplots()\n"
    "ax.title.set_text('x')",
    "standard library": "import collections, itertools, functools, json, os, pathlib, random, time, math\n"
    "collections.abc.Iterable; os.path.join('a', 'b'); pathlib.Path('x').name; random.seed(1); time.perf_counter()\n"
    "functools.lru_cache(maxsize=None); json.dumps({}); itertools.chain.from_iterable([]); math.prod([1])",
    "errors": "try:\n    raise ValueError('x')\nexcept (ValueError, torch.cuda.OutOfMemoryError) as error:\n"
    "    print(error)",
    "loops with underscores": "for _ in range(3): pass\n_, kept = (1, 2)",
    "a walrus and a lambda": "if (n := 3) > 2: print((lambda *xs: max(xs))(n, 1))",
    "own modules in a list": "layers = [torch.nn.Linear(2, 2) for _ in range(3)]\nfor layer in layers:\n"
    "    layer.name = 'x'\n    layer.weight.data.zero_()",
    "a hook on one's own model": "mine = torch.nn.Linear(2, 2)\nmine.register_forward_hook(lambda *a: None)\n"
    "class Net(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n"
    "        self.register_buffer('n', torch.zeros(1))",
    "a decorator of one's own": "import functools\ndef timed(f):\n    @functools.wraps(f)\n"
    "    def g(*a): return f(*a)\n    return g\ndef h(f):\n    def g(): return f()\n"
    "    functools.update_wrapper(g, f)\n    return g",
    "own tensors that the lesson's are added to": "mine = torch.zeros(4)\nmine.add_(table)\n"
    "torch.add(table, table, out=mine)\ntorch.nn.init.zeros_(mine)",
    "namedtuples": "from collections import namedtuple\nP = namedtuple('P', 'x y')\nP(1, 2)._replace(x=3)",
}


def flags(text: str) -> list[str]:
    return Policy([LESSON], ["model", "table", "reference"]).flags(text)


@pytest.mark.parametrize("name", FLAGGED)
def test_what_honest_answers_do_not_do_is_flagged(name: str) -> None:
    assert flags(FLAGGED[name])


@pytest.mark.parametrize("name", HONEST)
def test_what_is_honest_is_not_flagged(name: str) -> None:
    assert flags(HONEST[name]) == []


@pytest.mark.parametrize("name", AS_IT_RUNS)
def test_a_cell_is_read_as_ipython_runs_it(name: str) -> None:
    assert "imports inspect" in str(flags(AS_IT_RUNS[name]))


def test_a_text_that_python_cannot_read_is_flagged_and_a_file_is_read_by_python_alone() -> None:
    for text in ("x = (", "%%exercise first\nx = (", "%%time\n%%exercise first\nx = ("):
        assert flags(text) == [UNREADABLE]
    assert "runs a cell inside a cell" in flags("%%exercise first{exec('1')}\nx = 1")[0]
    assert "to be read" in flags("%time " * 9 + "x")[0]
    policy = Policy([LESSON])
    assert policy.flags("junk = (5\n%memit -1)\nimport inspect", module=True) == ["line 3 imports inspect"]
    assert policy.flags("In [1]: exec", module=True) == ["line 1 uses exec"]
    assert policy.flags("%time x", module=True) == [UNREADABLE]


def test_a_name_has_all_meanings_that_it_has_anywhere_in_the_notebook() -> None:
    cells = ["import math as m\ndef f(): return m.modules", "import sys as m"]
    policy = Policy([LESSON])
    policy.look_ahead(cells)
    assert policy.flags(cells[0]) == ["line 2 uses sys.modules"]
    many = "\n".join(f"m = torch.nn.Linear.a{number}" for number in range(13))
    assert policy.flags(many) == ["has names that lead too far to be read"]


def test_of_a_module_that_only_the_lesson_may_use_an_answer_uses_what_the_lesson_does() -> None:
    policy = Policy([LESSON, "import inspect\ninspect.getsource(f)"])
    assert policy.flags("import inspect\ninspect.getsource(g)") == []
    assert policy.flags("inspect.stack(0)") == ["line 1 uses inspect.stack"]


def test_a_class_does_not_say_what_parameters_it_has_where_a_check_asks() -> None:
    text = "class A(torch.nn.Linear):\n    def state_dict(self): return {}\n"
    hook = "def f(net): net.register_state_dict_post_hook(print)"
    asked = Policy([LESSON], asked=["state_dict"])
    assert (len(asked.flags(text)), len(asked.flags(hook))) == (1, 2)
    assert Policy([LESSON], solutions=[hook]).flags(hook) == []
    assert Policy([LESSON], solutions=[text], asked=["state_dict"]).flags(text) == []


def test_what_a_check_compares_with_is_not_read_under_another_name() -> None:
    policy = Policy([LESSON], compared=["table"])
    for text in ("known = table\ndef f(): return known[:2]", "class A: answer = table", "def f(): return table"):
        assert "reads table" in str(policy.flags(text))
    for text in ("kept = torch.add(table, 0)\ndef f(): return kept", "later = (table for _ in range(9))"):
        assert "with which the check compares" in str(policy.flags(text))
    for text in (
        "box = {}\nbox['kept'] = table.clone()\ndef f(): return box['kept']",
        "store = []\nstore.append(table)\ndef f(): return store[0]",
        "mine = torch.zeros(4)\ntorch.add(table, 0, out=mine)\ndef f(): return mine",
        "import heapq\nbox = []\nheapq.heappush(box, table)\ndef f(): return box[0]",
        "class A: pass\nsetattr(A, 'v', table)\ndef f(): return A.v",
    ):
        assert "with which the check compares" in str(policy.flags(text))
    assert policy.flags("def f(): return torch.load('a.pt')") == []
    assert "reads a file" in str(policy.flags("torch.save(table, 'a.pt')\ndef f(): return torch.load('a.pt')"))
    policy = Policy([LESSON], compared=["table"])
    assert policy.flags("all(table[k] == 3 for k in range(2))\ndef g(other): return other") == []
    assert policy.flags("print(table)\ndef g(table): return table") == []


def test_builtins_that_the_lesson_s_functions_call_keep_their_meaning() -> None:
    policy = Policy([LESSON, "def longest(times): return max(times)"])
    for text in ("max = len", "def max(k): return 0", "from operator import add as max"):
        assert "gives max another meaning, which functions of the lesson call" in policy.flags(text)
    assert policy.flags("sum = 3\ndef f(max): return max\n[max for max in (1, 2)]") == []


def test_what_the_lesson_or_its_solutions_use_and_change_an_answer_may() -> None:
    text = "import inspect\nmodel.forward = print\nmodel.weight.data.zero_()\ninspect.signature(print)"
    assert len(Policy([LESSON], ["model"]).flags(text)) == 4
    assert Policy([LESSON], ["model"], solutions=[text]).flags(text) == []


def test_a_text_too_deep_or_too_long_to_be_read_is_flagged() -> None:
    assert flags("+".join(["k"] * 900)) == ["is nested too deeply to be read"]
    assert flags("x = 1\n" * 50_000) == ["has 300,000 characters, too many to be read"]


def test_names_that_lead_far_take_no_time() -> None:
    lines = ["x0 = object()", *(f"x{i + 1} = [x{i}, x{i}]" for i in range(60))]
    assert flags("\n".join([*lines, "x60[0].colour = 1", "x60.append(1)"])) == []
    lines[0] = "x0 = lab.machine()"
    assert flags("\n".join([*lines, "x60[0].colour = 1"]))
    assert flags("\n".join([*lines, "x60[0].T = 1"]))
    assert "line 5 sets a.b.T" in str(flags("class A: pass\na = A()\na.b = A()\na.b = a.b\na.b.T = 1"))
    lines = ["t0 = 'a'", "t0 = 'b'", *(f"t{i + 1} = t{i} + t{i}" for i in range(30)), "t30.format(1)"]
    assert flags("\n".join(lines)) == ["has names that lead too far to be read"]
    assert "put together" in flags("('ab'" + " * 2" * 100 + ").format(1)")[0]
    policy = Policy([LESSON])
    assert policy.flags("x = object()\n" + "x = x; x.append(1)\n" * 4000) == []
    assert policy.flags("torch.equal = lambda *a: True")


HOLDERS = """import torch, functools, itertools, collections, contextlib
from dataclasses import dataclass
from torch import nn
from torch.utils.data import DataLoader, Subset
class Box:
    def __init__(self, p):
        self.p = p
    def get(self):
        return self.p
    @property
    def held(self):
        return self.p
    def __iter__(self):
        yield self.p
    def __getitem__(self, i):
        return self.p
@dataclass
class Record:
    q: object
class Kept(list):
    kind = torch.nn.Linear
Pair = collections.namedtuple("Pair", "first second")
def closure(a):
    def inner():
        return a
    return inner
def instead(function):
    return torch.nn.Linear
@instead
def decorated():
    pass
"""
LED_BACK = (
    "([] + [given])[0]", "([given] * 1)[0]", "({'p': given} | {})['p']", "(lambda: given)()", "(lambda p=given: p)()",
    "DataLoader(given).dataset", "Subset(given, [0]).dataset", "nn.Sequential(given)[0]", "nn.ModuleList([given])[0]",
    "{}.setdefault('p', given)", "{}.get('p', given)", "{}.pop('p', given)", "[given].pop()", "[given].copy()[0]",
    "Box(given).p", "Box(given).get()", "Box(given).held", "Box(given)[0]", "[*Box(given)][0]", "Record(given).q",
    "closure(given)()", "(given or 1)", "(given if 1 else 2)", "(p := given)", "[p for p in [given]][0]",
    "next(iter([given]))", "sum([[given]], [])[0]", "[*map(lambda p: p, [given])][0]", "(+given)",
    "functools.partial(print, given).args[0]", "[*itertools.chain([given])][0]", "collections.deque([given])[0]",
    "Kept([given])[0]", "Kept.kind", "Pair(given, 1).first", "decorated", "Box(torch.Tensor).p",
    "contextlib.nullcontext(given).enter_result", "functools.reduce(lambda a, b: b, [given], 0)",
)  # fmt: skip


@pytest.mark.parametrize("way", LED_BACK)
def test_what_an_answer_was_given_is_not_its_own_by_a_detour(way: str) -> None:
    """`([] + [photos])[0].milliseconds = 0.0`: reading took no time, without a flag."""
    for text in (f"{way}.size_in_bytes = 0", f"held = {way}\n    held.size_in_bytes = 0"):
        found = Policy().flags(f"{HOLDERS}def f(given):\n    {text}")
        assert any("which the answer did not make" in flag for flag in found), (text, found)


TAKEN = (
    "match Box(given):\n        case Box(p=taken): pass", "match [given]:\n        case [taken]: pass",
    "match Box(given):\n        case Box() as box: taken = box.p", "for taken in Box(given): pass",
    "box = Box(given)\n    for taken in box: pass", "for taken in list(Box(given)): pass", "(taken,) = Box(given)",
    "for taken, in [Box(given)]: pass", "with Opened(given) as taken: pass", "taken, *_ = Pair(given, 1)",
    "for number, taken in enumerate(Box(given)): pass", "[taken] = same(Box(given))", "[[taken]] = [Box(given)]",
    "match Pair(given, 1):\n        case (taken, _): pass", "taken = [k for k in Box(given)][0]",
)  # fmt: skip
FILLED = (
    "put = kept.append; put(given)", "heapq.heappush(kept, given)", "kept.extendleft([given])", "fill(kept)",
    "[*map(kept.append, [given])]", "kept = list(yielded(given))", "setattr(box, 'k', given); kept = [box.k]",
    "box.give = lambda: given; kept = [box.give()]", "kept = np.array([given], dtype=object)",
    "kept = [lab.expect.run(lambda: given)]", "kept = [torch.optim.SGD([{'k': given}]).param_groups[0]['k']]",
    "bisect.insort(kept, given)",
)  # fmt: skip
MADE = (
    "for taken in [Box(1), Box(2)]: pass", "for taken in (Box(given) for _ in range(3)): pass",
    "taken, other = Box(given), 1", "for taken, x in zip([Box(given)], [1]): pass",
    "for number, taken in enumerate([Box(given)]): pass", "match Box(given):\n        case taken: pass",
    "boxes = [Box(x) for x in given]\n    for taken in boxes: pass", "for taken in made(given): pass",
)  # fmt: skip
MORE = """class Opened:
    def __init__(self, q):
        self.q = q
    def __enter__(self):
        return self.q
    def __exit__(self, *about):
        pass
def same(k):
    return k
def made(n):
    for one in range(n):
        yield Box(one)
"""


@pytest.mark.parametrize("way", TAKEN)
def test_what_is_taken_from_an_object_of_its_own_is_what_it_was_given(way: str) -> None:
    found = Policy().flags(f"{HOLDERS}{MORE}def f(given):\n    {way}\n    taken.size_in_bytes = 0")
    assert any("which the answer did not make" in flag for flag in found), found


HIDDEN = (
    "{}.fromkeys(['k'], torch.Tensor)['k']", "set().union({torch.Tensor}).pop()", "ChainMap({'k': torch.Tensor})['k']",
    "{}.fromkeys('k', torch.Tensor)['k']", "give()", "functools.cache(lambda: torch.Tensor)()", "pick([torch.Tensor])",
    "numpy.array([torch.Tensor, 1])[0]", "[*kinds][0]", "kinds[0]", "off(torch.Tensor)", "Odd()", "Made()", "box.kind",
    "Data()", "same(torch.Tensor)", "(lambda: torch.Tensor)()", "copy.deepcopy(torch.Tensor)", "Box(torch.Tensor).p",
)  # fmt: skip
HIDE = """import copy, functools, numpy, torch
from dataclasses import dataclass
from collections import ChainMap, OrderedDict
from functools import partial
from operator import itemgetter
def same(x): return x
def hidden(make): return lambda: torch.Tensor
class Box:
    def __init__(self, p): self.p = p
class Odd:
    def __new__(cls): return torch.Tensor
@hidden
class Made: pass
@dataclass
class Data:
    def __new__(cls): return torch.Tensor
give, pick, off, box = partial(same, torch.Tensor), itemgetter(0), torch.no_grad(), Box(1)
box.kind = torch.Tensor
kinds = []
kinds.append(torch.Tensor)
"""


@pytest.mark.parametrize("way", HIDDEN)
def test_what_tensors_have_is_set_only_of_what_was_plainly_made(way: str) -> None:
    """`{}.fromkeys(["k"], torch.Tensor)["k"].T = property(twice)`: a model that doubles had all points."""
    for text in (f"{way}.T = 1", f"kind = {way}\nkind.T = 1", f"for kind in [{way}]:\n    kind.T = 1"):
        found = Policy().flags(HIDE + text)
        assert any("which the answer did not make" in flag or "replaces" in flag for flag in found), (text, found)
    within = f"class Net:\n    def f(self):\n        self.k = {way}\n        self.k.T = 1"
    assert "self.k.T" in str(Policy().flags(HIDE + within)), way


PUT_IN_UNSEEN = (
    "table.update(k=torch.Tensor)", "list.append(boxes, torch.Tensor)", "dict.update(table, k=torch.Tensor)",
    "boxes.__setitem__(0, torch.Tensor)", "also = boxes; also.append(torch.Tensor)", "boxes += [torch.Tensor]",
    "def fill(into=boxes): into[0] = torch.Tensor", "both = [boxes]; both[0].append(torch.Tensor)",
    "def fill(into): into[0] = torch.Tensor\nfill(boxes)", "(lambda into: into.append(torch.Tensor))(boxes)",
    "match {'k': torch.Tensor}:\n    case {**table}: pass", "box.fill(boxes)", "boxes.insert(0, *[torch.Tensor])",
)  # fmt: skip


@pytest.mark.parametrize("way", PUT_IN_UNSEEN)
def test_a_list_whose_items_are_one_s_own_goes_by_its_name_alone(way: str) -> None:
    """`table.update(k=torch.Tensor)`, and a model that did not compute `first` had all points."""
    start = "import torch\nclass Box: pass\nbox, boxes, table = Box(), [Box()], {'k': Box()}\n"
    item = "table['k']" if "table" in way else "boxes[0]"
    found = Policy().flags(f"{start}{way}\n{item}.T = 1")
    assert any("which the answer did not make" in flag or "replaces" in flag for flag in found), found
    assert Policy().flags(f"{start}print(len({item[:5]}))\nfor one in boxes: one.T = 2\n{item}.T = 1") == []


@pytest.mark.parametrize(
    ("name", "plain"),
    [
        ("'first'", True), ("'layer' + str(n)", True), ("f'layer{n}'", True), ("'_own'", True), ("each", True),
        ("f'{each}_x'", True), ("word", True), ("'__array_interface__'", False), ("2 * '_' + 'array'", False),
        ("low + 'array'", False), ("chr(95) + 'x'", False), ("f'{low}x'", False), ("n", False), ("'' + n", False),
    ],
)  # fmt: skip
def test_the_names_of_one_s_own_attributes_are_none_of_python_s(name: str, plain: bool) -> None:
    """`setattr(self, low + "array_interface" + low, …)`: numpy made an array of all of the process's memory."""
    text = f"""
low = chr(95)
class Own:
    def __init__(self, n, **given):
        for each, value in given.items():
            setattr(self, each, value)
        for key, value in {{"width": 3}}.items():
            setattr(self, key, value)
        for word in ("a", "b"):
            {"for each in given: " if "each" in name else ""}setattr(self, {name}, n)
"""
    assert (Policy().flags(text) == []) == plain
    assert Policy().flags(text.replace("        for each", "        given[low] = 3\n        for each", 1)) != []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("getattr(Box(1), 'kind', torch.Tensor).T = 1\nother = Box(1)\nother.kind = Box(2)", "did not make"),
        ("def give(): return Box(1)\ndef put(give): give().T = 1\nput(lambda: torch.Tensor)", "did not make"),
        ("def put(Box): Box(1).norm = 1\nput(lambda n: torch.Tensor)", "replaces"),
        ("from tqdm import tqdm\nbar = tqdm(range(3))\nbar.bar_format = ''.join(['{', 'x', '}'])", "put together"),
        ("class Off(torch.no_grad):\n    def __call__(self, x): return x\nOff(torch.Tensor).T = 1", "did not make"),
        ("class Off(torch.no_grad): pass\nclass On(Off): pass\nOn(torch.Tensor).norm = 1", "replaces"),
        ("import logging\nlogging.makeLogRecord({'a': 1})", "makeLogRecord"),
        ("torch.ones(2).sum(unsafe=True)", "without its checks"),
        ("f(check_invariants=off)", "without its checks"),
        ("torch.segment_reduce(x, 'sum')", "segment_reduce"),
        ("checked = torch.autograd.set_detect_anomaly\ndef f(): checked(False)", "set_detect_anomaly"),
    ],
)
def test_what_the_tenth_attacker_found(text: str, said: str) -> None:
    found = Policy().flags(f"import torch\nclass Box:\n    def __init__(self, p): self.p = p\n{text}")
    assert said in str(found)


@pytest.mark.parametrize("early", [True, False])
def test_keywords_that_become_attributes_are_written_out(early: bool) -> None:
    """`made[low + "array_interface" + low] = …`, `Own(**made)`: numpy saw all of the process's memory."""
    own = (
        "class Own:\n    def __init__(self, **given):\n        for key, one in given.items(): setattr(self, key, one)\n"
    )
    call = "def go():\n    made = {}\n    made[chr(95)] = 3\n    return Own(**made)\n"
    assert "put together" in str(Policy().flags(call + own if early else own + call))
    plain = "options = {'width': 3}\nOwn(**options)\nOwn(**{'a': 1}, b=2)\ndef same(**more): return Own(**more)\n"
    assert Policy().flags(own + plain + "other = {}\nother['a' + 'b'] = 1\nprint(**other)") == []


def test_what_a_lesson_asks_of_a_module_is_not_set_by_name() -> None:
    policy = Policy()
    policy.lists = frozenset({"named_parameters"})
    text = "class Net:\n    def __init__(self): setattr(self, 'named_parameters', print)"
    assert "replaces the method self.named_parameters" in str(policy.flags(text))


def test_objects_that_were_plainly_made_may_be_called_as_tensors_are() -> None:
    made = "boxes = [Box(n) for n in range(3)]\nboxes.append(Box(3))\nfor box in boxes:\n    box.T = 1\n"
    made += "boxes[0].T = 2\nown = Box(1)\nown.T = 3\ndef make(): return Box(2)\nother = make()\nother.T = 4\n"
    made += "layer = torch.nn.Linear(2, 2)\nlayer.T = 5\ndef f(): pass\nf.T = 6"
    plain = "import torch\nclass Box:\n    def __init__(self, p): self.p = p\n"
    assert Policy().flags(plain + made) == []


def test_private_methods_of_a_librarys_class_are_not_replaced() -> None:
    """`_add_action` of argparse's parser got the action that sets attributes by their names; `_apply` moves a model."""
    start = "import argparse, logging, contextlib\nfrom torch import nn\n"
    for base, method in (
        ("argparse.ArgumentParser", "_add_action"), ("nn.Module", "_apply"), ("nn.Linear", "_save_to_state_dict"),
        ("logging.Logger", "_log"), ("contextlib.ExitStack", "_push_cm_exit"), ("(Own)", "_named_members"),
    ):  # fmt: skip
        text = f"{start}class Own(nn.Module): pass\nclass B({base}):\n    def {method}(self, *given): return 1"
        assert f"replaces {method} of" in str(Policy().flags(text)), text
        kept = f"{start}class B({base.strip('()')}):\n    def _mine(self): return 1\n    _width = 3"
        assert base == "(Own)" or "replaces" not in str(Policy().flags(kept))
    assert "BooleanOptionalAction" in str(
        Policy().flags("import argparse\nargparse.BooleanOptionalAction(['--T'], 'T')")
    )


def test_of_libraries_for_kernels_only_what_is_documented_is_used() -> None:
    """`cuda.cudadrv.libs.open_cudalib` loads any C code; `tl.extra.modules` is `sys.modules`."""
    imports = "from numba import cuda, types\nimport triton, triton.language as tl, plotly.graph_objects as go"
    for text in (
        "cuda.cudadrv.libs.open_cudalib('x')", "cuda.testing", "tl.extra.modules", "tl.core.knobs", "types.functions",
        "go.Layout.re.search('a', 'b')",
    ):  # fmt: skip
        assert "uses" in str(Policy([imports]).flags(f"{imports}\n{text}")), text
    kernel = "@cuda.jit\ndef f(x):\n    i = cuda.grid(1)\n"
    kernel += "    shared = cuda.shared.array(32, 'float32')\n    cuda.atomic.add(x, 0, cuda.threadIdx.x)\n"
    kernel += "@triton.jit\ndef g(x, n: tl.constexpr):\n    a = tl.load(x + tl.arange(0, n)).to(tl.float32)\n"
    kernel += "    tl.store(x, tl.extra.libdevice.tanh(tl.math.exp(a)))"
    assert Policy([imports]).flags(f"{imports}\n{kernel}") == []


def test_profilers_and_warnings_do_not_say_which_check_calls() -> None:
    for text in (
        "with torch.profiler.profile(with_stack=True) as prof: pass", "torch.profiler.profile(**options)",
        "with torch.autograd.detect_anomaly(): pass", "torch.autograd.set_detect_anomaly(True)",
    ):  # fmt: skip
        assert "called from" in str(Policy().flags(f"import torch\ndef f():\n    {text}")), text
    assert Policy().flags("import torch\nwith torch.profiler.profile(with_stack=True) as prof: pass") == []
    rich = "from rich.progress import Progress, BarColumn\nPart = BarColumn\n"
    assert Policy().flags(f"{rich}Progress('{{task.description}}', BarColumn(), console=None)") == []
    bars = "from tqdm import tqdm\nfrom functools import partial\noptions = {'leave': False}\n"
    bars += "more = {}\nmore[key] = text\n"
    for way in (
        "tqdm(x, **more)",
        "partial(tqdm, **more)",
        "bar = tqdm\nbar(x, **dict([(key, 1)]))",
        "tqdm(x, **{key: 1})",
    ):
        assert "put together" in str(Policy().flags(bars + way)), way
    assert Policy().flags(bars + "tqdm(x, **options)\ntqdm(x, **{'desc': 'a'}, unit='b')\ndict(**more)") == []
    for column in ("'{task.fields[f].__globals__}'", "''.join([chr(123), path])", "column"):
        assert "put together" in str(Policy().flags(f"{rich}def f(column): Progress({column})")), column


def test_text_is_not_put_into_what_fx_generates() -> None:
    text = (
        "import torch\ndef f(graph, inputs):\n    graph.graph.on_generate_code(lambda before: None)\n    return graph"
    )
    assert Policy().flags(text) == ["line 3 runs text as code (on_generate_code)"]


def test_gradients_are_set_of_tensors_not_of_their_class() -> None:
    for way in ("for kind in (torch.Tensor,):\n    kind.grad = 3", "kinds = [torch.Tensor]\nkinds[0].grad = 3"):
        assert "grad" in str(Policy([LESSON]).flags(f"import torch\n{way}")), way
    assert Policy([LESSON]).flags("for p in (model.weight, model.bias):\n    p.grad = torch.ones(3)") == []


@pytest.mark.parametrize("way", FILLED)
def test_what_is_put_into_a_list_out_of_sight_is_not_its_own(way: str) -> None:
    """`put = kept.append; put(torch.Tensor); kept[0].T = property(nothing)`: a model that doubles had all points."""
    more = "import bisect, heapq\nimport numpy as np\nimport fakegpu_lab as lab\ndef fill(k): k.append(given)\n"
    more += "def yielded(k):\n    yield from [k]\nkept, box = [], Box(1)\n"
    text = f"{HOLDERS}{MORE}{more}def f(given):\n    {way}\n    kept[0].size_in_bytes = 0"
    assert any("which the answer did not make" in flag for flag in Policy().flags(text)), Policy().flags(text)


@pytest.mark.parametrize(
    "body",
    [
        "{put}    put(torch.Tensor)",
        "    global put\n{put}",
        "{put}    table = [put]\n",
        "{put}    def a(self, p=put): p(self)",
        "{put}    also = put\n    also(torch.Tensor)",
        "    @override\n{put}",
    ],
)
def test_a_method_that_is_used_as_a_function_is_given_any_object(body: str) -> None:
    put = "    def put(self):\n        self.T = 1\n"
    start = "import torch\noverride = [].append\nclass Box:\n"
    assert "T" in str(Policy().flags(start + body.format(put=put)))
    assert (
        Policy().flags(f"import torch\nclass Box:\n{put}    def get(self): return 1\n    value = property(get)") == []
    )


@pytest.mark.parametrize("way", MADE)
def test_what_is_taken_from_a_list_of_its_own_is_its_own(way: str) -> None:
    assert Policy().flags(f"{HOLDERS}{MORE}def f(given):\n    {way}\n    taken.size_in_bytes = 0") == []


def test_what_with_makes_of_an_object_that_enters_as_itself_is_its_own() -> None:
    timer = "class Timer:\n    def __init__(self, x): self.x = x\n    def __enter__(self): return self\n"
    assert Policy().flags(f"{timer}def f(given):\n    with Timer(given) as taken:\n        taken.seconds = 0") == []


def test_what_an_answer_made_of_its_own_is_its_own() -> None:
    assert (
        Policy().flags(f"{HOLDERS}thing = Box(3)\nthing.p = 4\nnet = nn.Sequential(nn.Linear(2, 2))\nnet[0].title = 1")
        == []
    )
    tied = "class Net(nn.Module):\n    def __init__(self, width):\n        self.head = nn.Linear(width, width)\n"
    tied += "def f(width):\n    net = Net(width)\n    net.head.weight = 1"
    assert Policy().flags(f"import torch.nn as nn\n{tied}") == []
    linked = "class Node: pass\nnode = Node()\nfor _ in range(9):\n    node = node.next\nnode.value = 1"
    assert "too" not in str(Policy().flags(linked))


def test_another_precision_of_products_is_for_lessons_that_speak_of_it() -> None:
    for change in ("torch.set_float32_matmul_precision('high')", "torch.backends.cuda.matmul.allow_tf32 = True"):
        found = Policy([LESSON]).flags(f"import torch\ndef f():\n    {change}")
        assert "another precision" in str(found), change
        assert Policy([LESSON]).flags(f"import torch\n{change}") == []
        assert Policy([LESSON, "torch.set_float32_matmul_precision('high')"]).flags(f"def f():\n    {change}") == []


def test_other_writers_and_readers_by_name_are_flagged() -> None:
    text = "import argparse\nput = argparse.ArgumentParser().add_argument('--elapsed')\nput(None, trace, 0)"
    assert Policy().flags(text) == ["line 2 keeps what add_argument returns, which sets attributes by their names"]
    log = "from rich.console import Console\nConsole().log('here', {})"
    assert Policy().flags(log.format("style='red'")) == []
    assert "log_locals" in str(Policy().flags(log.format("log_locals=True")))
    caught = "import warnings\nwith warnings.catch_warnings(record=True) as w:\n    warnings.warn('x', stacklevel=2)\n"
    for text in (
        "logging.getLogger('x').findCaller(False, 3)", "logging.info('x', stacklevel=3)", "w[0].lineno",
        "warnings.warn('x', UserWarning, 3)", "o = {'stacklevel': 4}\nlogging.warning('x', **o)",
        "a = 'x', UserWarning, 3\nwarnings.warn(*a)", "loss.grad_fn.metadata['traceback_']",
    ):  # fmt: skip
        assert Policy().flags(f"import logging\n{caught}{text}"), text
    assert Policy().flags(caught) == []
    for given in ("**{'_stack' + '_offset': 6}", "**{'_stack_offset': 6}", "**options"):
        found = Policy().flags("options = {'_stack' + '_offset': 6}\n" + f"print({given})")
        assert "name" in str(found), given
