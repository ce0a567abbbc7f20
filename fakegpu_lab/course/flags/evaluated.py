"""Inside a submission's process: reports text that a library ran as Python, and pickles that bring functions.

Python's audit hooks see both, whatever the library calls the function that did it. What answers honestly cause is a
list: Python's dataclasses, torch's compiler, IPython's cells. The rest is reported.
"""

from __future__ import annotations

import builtins
import dis
import os
import sys
from functools import lru_cache
from types import CodeType
from typing import TYPE_CHECKING, Any

from fakegpu_lab.course.flags import allowed, public
from fakegpu_lab.user_code.frames import OUR_FOLDER, OURS, STANDARD_LIBRARY, classified, package, walk

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from types import FrameType

EVENTS = frozenset({"exec", "marshal.loads", "pickle.find_class"})
"""Audit events: text or data that becomes code. To compile a text runs nothing; that is one of these, too."""

_GENERATE = {
    "fakegpu_lab": ("course/checks/", "course/grade/sandbox/", "course/cell_text/", "user_code/cell_code.py",
                    "kernels/", "course/lesson_magics.py", "notebook/"),
    "": ("dataclasses.py", "collections/__init__.py"),
    "torch": ("_dynamo/", "_inductor/", "_functorch/", "_library/", "fx/", "jit/", "_jit_internal.py", "library.py",
              "export/", "_export/", "onnx/"),
    "IPython": ("core/magics/execution.py", "core/magics/config.py", "core/pylabtools.py"),
    "networkx": ("utils/decorators.py",), "scipy": ("stats/_distn_infrastructure.py",), "attr": ("_make.py",),
    "jinja2": ("environment.py",), "sympy": ("polys/monomials.py", "utilities/lambdify.py"),
    "decorator.py": ("",), "triton": ("",), "numba": ("",), "numba_cuda": ("",),
}  # fmt: skip
"""Files of packages (and of Python) that run text which they make themselves, or which the policy reads."""
_GIVEN_TEXT = {
    ("timeit.py", "__init__"): ("stmt", "setup"),
    ("sigutils.py", "_parse_signature_string"): ("signature_str",),
}
"""Functions of timeit and numba that run a text that they are given: with its place, and fine if the policy read it."""
_OF_TIMEIT = frozenset({"", "pass", "_stmt()", "_setup()"})
"""What stands there for a function, and for nothing."""
_FOUND_IN = {
    "builtins": (_BUILTINS := allowed.BUILTINS - allowed.MAKE_OR_REACH), "__builtin__": _BUILTINS,
    "_codecs": frozenset({"encode"}),
    "copyreg": frozenset({"_reconstructor", "__newobj__", "__newobj_ex__"}),
    "torch": None, "torch._C": None, "torch._utils": None, "torch.storage": None, "torch._tensor": None,
    "torch.nn.parameter": None,
    "torch.nn.modules": None, "torch.optim": None, "torch.distributed": None, "torch.multiprocessing.reductions": None,
    "torch.utils.data": None, "torch.serialization": None, "multiprocessing": None, "numpy": None, "pandas": None,
    "collections": None, "datetime": None, "decimal": None, "fractions": None, "pathlib": None, "uuid": None,
    "__main__": None, "random": None, "fakegpu_lab.driver.environment.loader_workers": frozenset({"_Timed"}),
}  # fmt: skip
"""Modules whose classes a pickle may bring, with their parts; and the names of those of which it may not bring all.

Of functions, it may bring those that make values."""


OF_CHECKS = "<check "
"""How the file names of checks begin."""


def is_lessons(file: str, lesson: Collection[str]) -> bool:
    """Whether code is of a check, or of one of the lesson's own cells, whose files are `lesson`."""
    return file in lesson or file.startswith(OF_CHECKS)


def reports(
    trusted: Callable[[CodeType], bool], lesson: Collection[str], read: Collection[str] = ()
) -> Callable[[str, tuple[Any, ...], FrameType], str]:
    """Make the function that says what is wrong with one of `EVENTS`; it says nothing where a cell did not cause it.

    Parameters
    ----------
    trusted
        Whether code is that of Python, of an installed library or of this package.
    lesson
        The names of the lesson's own cells; more may be added to it.
    read
        The texts that the policy has read, without spaces and line breaks.
    """

    def report(event: str, arguments: tuple[Any, ...], frame: FrameType) -> str:
        if event == "pickle.find_class" and _may_be_found(str(arguments[0]), str(arguments[1])):
            return ""
        code = arguments[0] if arguments else None
        if event == "exec" and isinstance(code, CodeType) and trusted(code):
            return ""
        by, unread, odd = "", False, list[str]()
        for one in walk(frame):
            file = one.f_code.co_filename
            if not trusted(one.f_code):
                if is_lessons(file, lesson):
                    return ""
                return _sentence(event, arguments, by) + (f": it names {odd[0][:40]}" if odd else "")
            if one is frame and (names := _GIVEN_TEXT.get((os.path.basename(file), one.f_code.co_name))):  # noqa: PTH119
                given = ["".join(str(one.f_locals.get(name)).split()) for name in names]
                unread = any(text not in _OF_TIMEIT and text not in read for text in given)
                if not unread:
                    return ""
            if event == "exec" and not odd and _in(file, _BY_NAMES):
                odd = _odd_names(code, writes=_place(file)[0] != "torch")
            if (
                file.startswith("<frozen importlib")
                or one.f_code.co_name == "<module>"
                or not (unread or odd or not _in(file, _GENERATE))
            ):
                return ""  # an import, or one of the list
            by = by or _name(file)
        return ""

    return report


_BY_NAMES = {
    "": ("dataclasses.py", "collections/__init__.py"), "torch": ("fx/", "export/", "_export/", "jit/"),
    "sympy": ("utilities/lambdify.py",),
}  # fmt: skip
"""Of `_GENERATE`, what puts names that it is given into its text."""
_ODD = {
    *allowed.FRAMES, *allowed.SHELL, *(allowed.MODULE_NAMES - {"torch", "builtins"}), "__import__", "__subclasses__",
    "__globals__", "__builtins__", "__closure__", "__code__", "__mro__", "__base__", "__bases__", "__loader__",
    *(name for name in vars(builtins).keys() - allowed.BUILTINS if name[0].islower()),
}  # fmt: skip


def _odd_names(code: Any, *, writes: bool) -> list[str]:
    """What a generated text names, and none that is generated honestly does; with `writes`, it may set attributes."""
    if not isinstance(code, CodeType):
        return []
    inner = [one for one in code.co_consts if isinstance(one, CodeType)]
    found = [name for name in (*code.co_names, *filter(_is_special, code.co_consts)) if name in _ODD]
    for step in dis.get_instructions(code):
        reaches = step.opname == "IMPORT_NAME" and str(step.argval).split(".")[0] not in _IMPORTED
        sets = step.opname in ("STORE_ATTR", "DELETE_ATTR") and step.argval in public.attributes_of_tensors()
        names = step.opname in ("LOAD_GLOBAL", "LOAD_NAME") and step.argval in _GENERATED_NEVER
        found += [str(step.argval)] if reaches or names or (sets and not writes) else []
    return found + [name for one in inner for name in _odd_names(one, writes=writes)]


def _is_special(constant: object) -> bool:
    return isinstance(constant, str) and constant.startswith("__")


_GENERATED_NEVER = frozenset({"getattr", "setattr", "delattr", "open", "print", "vars", "globals", "locals"})
"""Builtins that no generated text calls by their names."""
_IMPORTED = frozenset({"torch", "math", "cmath", "numpy", "scipy", "mpmath", "sympy"})
"""What a generated text imports, if anything."""


def _sentence(event: str, arguments: tuple[Any, ...], by: str) -> str:
    where = f" ({by})" if by else ""
    if event == "pickle.find_class":
        return f"loaded a pickle that brings {arguments[0]}.{arguments[1]}{where}"
    return f"{'ran a text as code' if event == 'exec' else 'loaded compiled code'}{where}"


def _may_be_found(module: str, name: str) -> bool:
    """Whether a pickle may bring something: a name of a module, not one that is reached through others."""
    words = module.split(".")
    known = next((at for at in (".".join(words[:n]) for n in range(len(words), 0, -1)) if at in _FOUND_IN), None)
    if known is None or "." in name or known == "torch" != module:
        return False
    if (names := _FOUND_IN[known]) is not None:
        return name in names
    if module == "__main__":  # what the notebook makes itself
        return True
    thing = vars(sys.modules[module]).get(name) if module in sys.modules else None
    rebuilds = name.lstrip("_").startswith(_REBUILD) or name.endswith("_ctor")
    return name not in allowed.MODULE_NAMES and (rebuilds or isinstance(thing, type) or not callable(thing))


_REBUILD = ("rebuild", "reconstruct", "scalar", "frombuffer", "unpickle", "new_", "load_from_bytes",
            "pyx_unpickle", "get_layout", "default_collate")  # fmt: skip
"""How functions begin that make a value from its parts."""


def _in(file: str, listed: dict[str, tuple[str, ...]]) -> bool:
    """Whether an installed file is one of those listed by package: it runs text that it makes itself."""
    package_of, inside = _place(file)
    return inside.startswith(listed.get(package_of, ("\0",)))


@lru_cache(maxsize=1024)
def _place(file: str) -> tuple[str, str]:
    """The package of an installed file, empty for Python's own, and its path in it."""
    ours = os.path.realpath(file).removeprefix(OUR_FOLDER) if classified(file) & OURS else file
    if ours != file:
        return "fakegpu_lab", ours.replace(os.sep, "/")
    if (installed := package(file)) is not None:
        return installed, file.replace(os.sep, "/").rpartition(f"/{installed}/")[2]
    real = os.path.realpath(file)
    inside = real.removeprefix(STANDARD_LIBRARY).replace(os.sep, "/")
    return ("", inside) if inside != real else ("\0", file)


def _name(file: str) -> str:
    """The library that a file belongs to, or the module of Python's."""
    return package(file) or os.path.basename(file).removesuffix(".py")  # noqa: PTH119
