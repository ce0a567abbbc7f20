"""Found before nvidia-ml-py's `pynvml`: loads that module, and attaches the simulated GPUs to it.

If the program's Python has no fakegpu_lab, or there is no machine to inherit, it is plain nvidia-ml-py.
"""

import importlib.machinery
import importlib.util
import os
import sys


def _load() -> None:
    ours = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - pathlib is slow to import, and every child process may load this
    others = [place for place in sys.path if os.path.abspath(place or ".") != ours]  # noqa: PTH100
    spec = importlib.machinery.PathFinder.find_spec("pynvml", others)
    if spec is None or spec.loader is None:
        raise ModuleNotFoundError("No module named 'pynvml'", name="pynvml")
    module = importlib.util.module_from_spec(spec)
    sys.modules["pynvml"] = module
    spec.loader.exec_module(module)
    if "FAKEGPU_LAB_MACHINE" in os.environ:
        try:
            from fakegpu_lab.nvml import library
        except ImportError:
            return
        library.attach(module)


_load()
