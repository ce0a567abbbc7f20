"""Flags for what an instructor should look at in a submission's source. They cost no points: it may be honest.

A cell is parsed, never run. `allowed` lists what honest answers use; the rest is flagged with its line.
"""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from fakegpu_lab.course.flags import allowed
from fakegpu_lab.course.flags.source_text import binding, bound_names, tree_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

LONGEST = 100_000
"""Characters of a cell; a longer one is flagged, not read."""
_SECRET = re.compile(r"gradebook\.db|grades\.csv|HIDDEN TESTS|/proc/|(^|[.{\[])__\w")
_CODE = frozenset({"exec", "eval", "compile", "__import__", "globals", "locals", "vars", "breakpoint", "input"})
_LYING = frozenset({"int", "float", "complex", "str", "bytes", "bool"})
_CHANGES = frozenset(
    ["append", "clear", "extend", "insert", "pop", "popitem", "remove", "reverse", "sort", "update", "setdefault"]
)
_QUIET = frozenset({"print", "help", "dir", "type", "repr", "id"})
_OF_SHELL = frozenset({"run_line_magic", "run_cell_magic", "system", "getoutput"})
_ATTRIBUTES = frozenset({"getattr", "setattr", "delattr"})


class Policy:
    """Looks at the cells of one submission.

    Parameters
    ----------
    given
        The texts of the lesson's own cells.
    read
        Names that the lesson's cells make and its checks read, so that an answer should not change them.
    allow
        What else the lesson allows: ``"threading"``.
    own
        Modules that were handed in, by name: they are looked at, too.
    """

    def __init__(
        self, given: Iterable[str] = (), read: Iterable[str] = (), allow: Iterable[str] = (), own: Iterable[str] = ()
    ) -> None:
        self._modules = set(allowed.MODULES) | set(own) | (set(allowed.THREADS) if "threading" in allow else set())
        self._read = set(read)
        self._imported: dict[str, str] = {}
        self._functions: set[str] = set()
        self._private = set[str]()
        self._statements: dict[str, set[str]] = {}
        for source in given:
            tree = tree_of(source)
            self._learn(tree)
            for name, statement in binding(tree):
                self._statements.setdefault(name, set()).add(statement)
        self._given = dict(self._imported)
        self._read -= set(self._given)
        self._kept = self._read

    def _learn(self, tree: ast.Module | None) -> None:
        """Remember what names stand for: imported modules and things, functions, a class's private attributes."""
        for node in ast.walk(tree) if tree is not None else ():
            if isinstance(node, ast.Import):
                for alias in node.names:
                    self._imported[alias.asname or alias.name.split(".")[0]] = (
                        alias.name if alias.asname else alias.name.split(".")[0]
                    )
            elif isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    self._imported[alias.asname or alias.name] = f"{node.module}.{alias.name}"
            elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                self._functions.add(node.name)
            elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
                self._private.add(node.attr)
            elif isinstance(node, ast.Assign) and (path := self._path(node.value)):
                self._imported |= {one.id: path for one in node.targets if isinstance(one, ast.Name)}

    def _path(self, node: ast.expr) -> str:
        """What an expression names of an imported module, such as ``torch.cuda``; empty if it is something else."""
        if isinstance(node, ast.Name):
            return self._imported.get(node.id, "")
        if isinstance(node, ast.Attribute) and (path := self._path(node.value)):
            return f"{path}.{node.attr}"
        return ""

    def flags(self, source: str, later: Iterable[str] = ()) -> list[str]:
        """Return what is suspicious in a cell, a phrase for each.

        Parameters
        ----------
        later
            Names that the lesson's own cells make after this one: to change them before is in vain.
        """
        if len(source) > LONGEST:
            return [f"has {len(source):,} characters, too many to be read"]
        tree = tree_of(source)
        if tree is None:
            return []
        self._learn(tree)
        self._kept = self._read - set(later)
        parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
        found = {
            f"line {getattr(node, 'lineno', 0)} {what}"
            for node in ast.walk(tree)
            for what in self._about(node, parents.get(node))
            if what
        }
        bound = bound_names(source)
        own = {name for name, statement in binding(tree) if statement not in self._statements.get(name, ())}
        found |= {f"gives {name}, which the check reads, another value" for name in bound & self._kept & own}
        other = [name for name, path in self._given.items() if self._imported[name] != path or name in _assigned(tree)]
        found |= {f"gives {name} another meaning" for name in other if name in bound}
        return sorted(found)

    def _about(self, node: ast.AST, parent: ast.AST | None) -> Iterator[str]:
        if isinstance(node, ast.Attribute):
            yield from self._attribute(node)
        elif isinstance(node, ast.Name):
            yield self._name(node, parent)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            yield from self._import(node)
        elif isinstance(node, ast.Call):
            yield from self._call(node)
            magic = isinstance(parent, ast.Attribute) and parent.attr in _OF_SHELL
            if isinstance(node.func, ast.Name) and node.func.id == "get_ipython" and not magic:
                yield "uses get_ipython"
        elif isinstance(node, ast.ClassDef):
            yield from self._class(node)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield _special(node.name, f"defines {node.name}")
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and _SECRET.search(node.value):
            yield "" if node.value in allowed.SPECIAL else f"names {node.value[:60]!r}"
        elif isinstance(node, ast.keyword) and node.arg:
            yield _special(node.arg, f"names {node.arg}")
        elif isinstance(node, ast.MatchClass):
            yield from (_special(name, f"reads {name}") for name in node.kwd_attrs)
        elif isinstance(node, ast.Subscript) and isinstance(node.ctx, (ast.Store, ast.Del)):
            yield self._change(node.value)

    def _name(self, node: ast.Name, parent: ast.AST | None) -> str:
        called = isinstance(parent, ast.Call) and parent.func is node
        if node.id in _CODE and isinstance(node.ctx, ast.Load):
            return f"uses {node.id}"
        if node.id in _ATTRIBUTES and not called and isinstance(node.ctx, ast.Load):
            return f"uses {node.id} as a value"
        if node.id == "get_ipython" and not isinstance(parent, ast.Call):  # a line of IPython's is such a call
            return "uses get_ipython"
        path = self._imported.get(node.id, "")
        quiet = isinstance(parent, ast.Call) and isinstance(parent.func, ast.Name) and parent.func.id in _QUIET
        if (
            path
            and "." not in path
            and isinstance(node.ctx, ast.Load)
            and not isinstance(parent, (ast.Attribute, ast.Assign))
        ):
            return "" if quiet or _gets(parent) else f"passes the module {path} on"
        return _special(node.id, f"names {node.id}")

    def _attribute(self, node: ast.Attribute) -> Iterator[str]:
        name, text = node.attr, ast.unparse(node.value)
        if name in allowed.FRAMES:
            yield f"reads {name}"
        elif (name in allowed.SHELL and "get_ipython" in text) or name in ("ast_transformers", "magics_manager"):
            yield f"changes how cells run (.{name})"
        elif name in allowed.BOOKS and "snapshot" not in text and _of_machine(text):
            yield f"reaches into the simulated machine's books (.{name})"
        elif name in allowed.MODULE_NAMES or name == "get_ipython":
            yield f"reaches {text}.{name}"
        elif name.startswith("_") and not name.startswith("__") and not self._is_own(node):
            yield f"uses the private name {text[:40]}.{name}"
        elif name.startswith("__") and not (name == "__class__" and isinstance(node.ctx, ast.Load)):
            yield _special(name, f"reads {name}") if isinstance(node.ctx, ast.Load) else f"sets {name}"
        elif name == "__class__":
            yield f"reads {name}" if self._path(node.value) else ""
        if path := self._path(node):
            module, _, part = path.partition(".")
            part = part.split(".")[0]
            if module in allowed.PARTS and part not in allowed.PARTS[module]:
                yield f"uses {module}.{part}"
            if any(path == one or path.startswith(f"{one}.") for one in allowed.HIDDEN - {"fakegpu_lab.course"}):
                yield f"uses {path}"
        if isinstance(node.ctx, (ast.Store, ast.Del)):
            yield self._change(node.value)
            if path and not path.startswith(("torch.backends", "matplotlib", "plotly", "torch.manual")):
                yield f"assigns to {ast.unparse(node)}"

    def _is_own(self, node: ast.Attribute) -> bool:
        """Whether a private attribute is one of the answer's own classes."""
        if node.attr in ("_asdict", "_replace", "_fields", "_make") or ast.unparse(node.value) in (
            "self",
            "cls",
            "super()",
        ):
            return True
        return (
            node.attr in self._private
            and not self._path(node.value)
            and node.attr not in ("_inner", "_buffer", "_recorder")
        )

    def _change(self, node: ast.expr) -> str:
        """Changing, in place, what the lesson made and the check reads."""
        while isinstance(node, (ast.Attribute, ast.Subscript)):
            node = node.value
        return (
            f"changes {node.id}, which the check reads" if isinstance(node, ast.Name) and node.id in self._kept else ""
        )

    def _import(self, node: ast.Import | ast.ImportFrom) -> Iterator[str]:
        if isinstance(node, ast.ImportFrom):
            module = node.module or ""
            names = [f"{module}.{alias.name}" for alias in node.names if alias.name != "*"]
            if any(alias.name == "*" for alias in node.names) and module.split(".")[0] in allowed.PARTS:
                yield f"imports all of {module}"
        else:
            module, names = "", [alias.name for alias in node.names]
        for name in names or [module]:
            top, _, rest = name.partition(".")
            part = rest.split(".")[0]
            if top not in self._modules or (part and top in allowed.PARTS and part not in allowed.PARTS[top]):
                yield f"imports {name}"
            elif name.startswith("fakegpu_lab.course") and not name.startswith("fakegpu_lab.course.pictures"):
                yield "" if name == "fakegpu_lab.course" else f"imports {name}"
            elif any(name == one or name.startswith(f"{one}.") for one in allowed.HIDDEN):
                yield f"imports {name}"
            elif any(word.startswith("_") and word != "__future__" for word in name.split(".")):
                yield f"imports the private {name}"
            elif part in allowed.MODULE_NAMES:
                yield f"imports {name}"
        for alias in node.names:
            yield _special(alias.asname or "", f"names {alias.asname}")

    def _call(self, node: ast.Call) -> Iterator[str]:
        name = (
            node.func.id
            if isinstance(node.func, ast.Name)
            else node.func.attr
            if isinstance(node.func, ast.Attribute)
            else ""
        )
        path = self._path(node.func)
        if isinstance(node.func, ast.Name) and name in _ATTRIBUTES:
            yield self._by_name(node)
        if isinstance(node.func, ast.Name) and name == "type" and len(node.args) == 3:
            yield "makes a class by type()"
        if name in (
            "make_dataclass",
            "new_class",
            "attrgetter",
            "methodcaller",
            "TorchFunctionMode",
            "TorchDispatchMode",
        ):
            yield f"uses {name}"
        if path.startswith("timeit.") and not all(_is_function(one, self._functions) for one in node.args[:2]):
            yield f"runs text as code ({path})"
        if path == "torch.load" and any(one.arg == "weights_only" and not _is_true(one.value) for one in node.keywords):
            yield "loads a file that may run code (weights_only)"
        if any(one.arg == "allow_pickle" for one in node.keywords) or (
            name in ("read_pickle", "query") and "pandas" in path
        ):
            yield f"loads a file that may run code ({name})"
        if isinstance(node.func, ast.Attribute) and (
            name in _CHANGES or (name.endswith("_") and not name.startswith("_"))
        ):
            yield self._change(node.func.value)
        if name in _OF_SHELL:
            yield _about_magic(name, node.args)

    def _by_name(self, node: ast.Call) -> str:
        """getattr, setattr, delattr."""
        if len(node.args) < 2:
            return ""
        owner, name = node.args[0], node.args[1]
        if isinstance(owner, ast.Name) and owner.id == "self":
            return ""
        if not (isinstance(name, ast.Constant) and isinstance(name.value, str)):
            return f"puts an attribute's name together ({ast.unparse(node)[:80]})"
        if name.value.startswith("_") or name.value in allowed.FRAMES | allowed.MODULE_NAMES | allowed.SHELL:
            return f"calls {ast.unparse(node)[:80]}"
        changes = isinstance(node.func, ast.Name) and node.func.id != "getattr"
        return f"calls {ast.unparse(node)[:80]}" if changes and self._path(owner) else ""

    def _class(self, node: ast.ClassDef) -> Iterator[str]:
        bases = [self._path(base) or ast.unparse(base) for base in node.bases]
        if any(base in _LYING for base in bases):
            yield f"defines a class that imitates a {next(base for base in bases if base in _LYING)}"
        if any(
            base.endswith(("torch.Tensor", "nn.Parameter", "TorchFunctionMode", "TorchDispatchMode")) for base in bases
        ):
            yield f"defines a class of {', '.join(bases)}"
        if any(keyword.arg is None or keyword.arg == "metaclass" for keyword in node.keywords):
            yield "defines a class with a metaclass"
        for part in node.body:
            if isinstance(part, ast.FunctionDef) and part.name in allowed.LISTS:
                yield f"defines {node.name}.{part.name}"


def _assigned(tree: ast.Module) -> set[str]:
    """Names that are assigned, or defined, and not imported."""
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    return names | {node.name for node in tree.body if isinstance(node, (ast.FunctionDef, ast.ClassDef))}


def _special(name: str, what: str) -> str:
    return what if name.startswith("__") and name.endswith("__") and name not in allowed.SPECIAL else ""


def _gets(parent: ast.AST | None) -> bool:
    return isinstance(parent, ast.Call) and isinstance(parent.func, ast.Name) and parent.func.id in _ATTRIBUTES


def _is_function(node: ast.expr, functions: set[str]) -> bool:
    return isinstance(node, ast.Lambda) or (isinstance(node, ast.Name) and node.id in functions)


def _is_true(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is True


def _of_machine(text: str) -> bool:
    """Whether an expression reaches the machine, as ``machine().…`` or ``….devices[0]`` does."""
    return any(word in text for word in ("machine", "device", "fakegpu", "trace")) or text == "lab"


def _about_magic(kind: str, arguments: list[ast.expr]) -> str:
    """A line of IPython's: a magic, or a command of the shell."""
    words = [one.value for one in arguments if isinstance(one, ast.Constant) and isinstance(one.value, str)]
    if len(words) < len(arguments) or not words:
        return "puts a command together"
    if kind in ("system", "getoutput"):
        program = words[0].strip().split(" ")[0]
        return (
            ""
            if program in allowed.COMMANDS and not re.search(r"[;&|`$><]| -c", words[0])
            else f"runs {words[0][:60]!r}"
        )
    if words[0] == "load_ext":
        return "" if words[1].strip() in ("fakegpu_lab", "autoreload", "memory_profiler") else f"loads {words[1]}"
    return "" if words[0] in allowed.MAGICS else f"uses the magic {words[0]}"
