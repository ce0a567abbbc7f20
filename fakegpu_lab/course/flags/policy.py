"""Flags for what an instructor should look at in a submission's source. They cost no points: it may be honest.

A cell is parsed, never run. `allowed` lists what honest answers use; the rest is flagged with its line.
"""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from fakegpu_lab.course.cell_text.bindings import declared_global
from fakegpu_lab.course.cell_text.source import binding, bound_names, root_of, tree_of
from fakegpu_lab.course.flags import allowed, commands
from fakegpu_lab.course.flags.meaning import Meanings, without_getattr

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

LONGEST = 100_000
"""Characters of a cell; a longer one is flagged, not read."""
_SECRET = re.compile(
    r"gradebook\.db|grades\.csv|HIDDEN TESTS|/proc/|(^|[.{\[])__\w|^(weights_only|allow_pickle)$|ext://|fakegpu_lab\.\w+\."
)
_CODE = frozenset({"exec", "eval", "compile", "__import__", "globals", "locals", "vars", "breakpoint", "input"})
_LYING = frozenset({"int", "float", "complex", "str", "bytes", "bool"})
_CHANGES = frozenset(
    ["append", "clear", "extend", "insert", "pop", "popitem", "remove", "reverse", "sort", "update", "setdefault"]
)
_QUIET = frozenset({"print", "help", "dir", "type", "repr", "id"})
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
        self._names = Meanings()
        self._statements: dict[str, set[str]] = {}
        self._enabled, self._gpus = set[str](), set[str]()
        for source in given:
            tree = tree_of(source)
            self._names.learn(tree)
            for name, statement in binding(tree):
                self._statements.setdefault(name, set()).add(statement)
            for node in ast.walk(tree) if tree is not None else ():
                self._remember_gpus(node)
        self._given = {name: path for name, path in self._names.paths.items() if "()" not in path}
        self._read -= set(self._given)
        self._kept = self._read

    def _remember_gpus(self, node: ast.AST) -> None:
        """What the lesson's own cells enable, an answer may enable, too."""
        if isinstance(node, ast.Call):
            words = [one.value for one in node.args if isinstance(one, ast.Constant)]
            if len(words) == 2 and words[0] == "fakegpu":
                self._gpus.add(str(words[1]).strip())
            if self._names.path(node.func) == "fakegpu_lab.enable":
                self._enabled.add(_arguments(node))

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
        tree = without_getattr(tree)
        self._names.learn(tree)
        self._kept = self._read - set(later)
        self._inside = parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
        found = {
            f"line {getattr(node, 'lineno', 0)} {what}"
            for node in ast.walk(tree)
            for what in self._about(node, parents.get(node))
            if what
        }
        outer = declared_global(tree)
        bound = bound_names(source) | outer
        own = outer | {name for name, statement in binding(tree) if statement not in self._statements.get(name, ())}
        found |= {f"gives {name}, which the check reads, another value" for name in bound & self._kept & own}
        other = [
            name for name, path in self._given.items() if self._names.paths[name] != path or name in _assigned(tree)
        ]
        found |= {f"gives {name} another meaning" for name in other if name in bound}
        return sorted(found)

    def _about(self, node: ast.AST, parent: ast.AST | None) -> Iterator[str]:
        if isinstance(node, ast.Attribute):
            yield from self._attribute(node, parent)
        elif isinstance(node, ast.Name):
            yield self._name(node, parent)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            yield from self._import(node)
        elif isinstance(node, ast.Call):
            yield from self._call(node)
            magic = isinstance(parent, ast.Attribute) and parent.attr in commands.OF_SHELL
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
            yield f"changes {ast.unparse(node.value)}" if "()" in self._names.path(node.value) else ""

    def _name(self, node: ast.Name, parent: ast.AST | None) -> str:
        called = isinstance(parent, ast.Call) and parent.func is node
        if node.id in _CODE and isinstance(node.ctx, ast.Load):
            return f"uses {node.id}"
        if node.id in _ATTRIBUTES and not called and isinstance(node.ctx, ast.Load):
            return f"uses {node.id} as a value"
        if node.id == "get_ipython" and not isinstance(parent, ast.Call):  # a line of IPython's is such a call
            return "uses get_ipython"
        path = self._names.paths.get(node.id, "")
        quiet = isinstance(parent, ast.Call) and isinstance(parent.func, ast.Name) and parent.func.id in _QUIET
        if _is_module(path) and isinstance(node.ctx, ast.Load) and not isinstance(parent, (ast.Attribute, ast.Assign)):
            return "" if quiet else f"passes the module {path} on"
        return _special(node.id, f"names {node.id}")

    def _attribute(self, node: ast.Attribute, parent: ast.AST | None) -> Iterator[str]:
        name, text, path = node.attr, ast.unparse(node.value), self._names.path(node)
        if name in allowed.FRAMES:
            yield f"reads {name}"
        elif (name in allowed.SHELL and "get_ipython" in text) or name in ("ast_transformers", "magics_manager"):
            yield f"changes how cells run (.{name})"
        elif (
            name in allowed.BOOKS
            and "snapshot" not in text
            and (_of_machine(text) or "()" in path or name in allowed.ONLY_BOOKS)
        ):
            yield f"reaches into the simulated machine's internal records (.{name})"
        elif name in allowed.MODULE_NAMES or name == "get_ipython":
            yield f"reaches {text}.{name}"
        elif name.startswith("_") and not name.startswith("__") and not self._is_own(node):
            yield f"uses the private name {text[:40]}.{name}"
        elif name.startswith("__") and not (name == "__class__" and isinstance(node.ctx, ast.Load)):
            yield _special(name, f"reads {name}") if isinstance(node.ctx, ast.Load) else f"sets {name}"
        elif name == "__class__":
            yield f"reads {name}" if self._names.path(node.value) else ""
        if path:
            yield f"uses {path}" if _is_hidden(path) else ""
            if _is_module(path) and not isinstance(parent, (ast.Attribute, ast.Assign)):
                yield f"passes the module {path} on"
        if name.startswith("register_module_"):
            yield f"sets a hook on all modules ({name})"
        if isinstance(node.ctx, (ast.Store, ast.Del)):
            yield self._change(node.value)
            if path and not path.startswith(("torch.backends", "matplotlib", "plotly")):
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
            node.attr in self._names.private
            and not self._names.path(node.value)
            and node.attr not in ("_inner", "_buffer", "_recorder")
        )

    def _change(self, node: ast.expr) -> str:
        """Changing, in place, what the lesson made and the check reads."""
        root = root_of(node)
        if not isinstance(root, ast.Name) or root.id not in self._kept or self._is_parameter(root.id, root):
            return ""
        return f"changes {root.id}, which the check reads"

    def _is_parameter(self, name: str, node: ast.AST) -> bool:
        """Whether a name is a parameter of a function around a node, and so not the lesson's."""
        around = self._inside.get(node)
        if isinstance(around, ast.FunctionDef) and name in [one.arg for one in around.args.args]:
            return True
        return around is not None and self._is_parameter(name, around)

    def _import(self, node: ast.Import | ast.ImportFrom) -> Iterator[str]:
        if isinstance(node, ast.ImportFrom):
            module = node.module or ""
            names = [f"{module}.{alias.name}" for alias in node.names if alias.name != "*"]
            if any(alias.name == "*" for alias in node.names) and module.split(".")[0] in allowed.PARTS:
                yield f"imports all of {module}"
        else:
            module, names = "", [alias.name for alias in node.names]
        for name in names or [module]:
            words = name.split(".")
            if (
                words[0] not in self._modules
                or _is_hidden(name)
                or any(word.startswith("_") and word != "__future__" for word in words)
                or any(word in allowed.MODULE_NAMES for word in words[1:2])
            ):
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
        path = self._names.path(node.func)
        if isinstance(node.func, ast.Name) and name in _ATTRIBUTES:
            yield self._by_name(node)
        of_type = isinstance(node.func, ast.Call) and ast.unparse(node.func.func) == "type"
        if (of_type or (isinstance(node.func, ast.Name) and name == "type")) and len(node.args) == 3:
            yield "makes a class by type()"
        if path == "fakegpu_lab.disable" or (path == "fakegpu_lab.enable" and _arguments(node) not in self._enabled):
            yield f"chooses the GPUs ({ast.unparse(node)[:60]})"
        if name in (
            "make_dataclass",
            "new_class",
            "attrgetter",
            "methodcaller",
            "TorchFunctionMode",
            "TorchDispatchMode",
        ):
            yield f"uses {name}"
        named = {keyword.arg: keyword.value for keyword in node.keywords}
        timed = [*node.args[:2], *(named[key] for key in ("stmt", "setup") if key in named)]
        if path.startswith("timeit.") and not all(_is_function(one, self._names.functions) for one in timed):
            yield f"runs text as code ({path})"
        if not _is_true(named.get("weights_only", ast.Constant(True))) or (path == "torch.load" and None in named):
            yield "loads a file that may run code (weights_only)"
        if "allow_pickle" in named or (path == "numpy.load" and (None in named or len(node.args) > 2)):
            yield "loads a file that may run code (allow_pickle)"
        if name in ("read_pickle", "query") and "pandas" in path:
            yield f"loads a file that may run code ({name})"
        if {"assigned", "updated"} & set(named):
            yield f"copies attributes by their names ({name})"
        if isinstance(node.func, ast.Attribute) and (
            name in _CHANGES or (name.endswith("_") and not name.startswith("_"))
        ):
            yield self._change(node.func.value)
            yield f"changes {ast.unparse(node.func.value)}" if "()" in self._names.path(node.func.value) else ""
        if name in commands.OF_SHELL:
            yield commands.about(name, node.args, self._gpus)
            inner = tree_of(commands.argument(node))
            for one in ast.walk(inner) if inner is not None else ():
                yield from self._about(one, None)

    def _by_name(self, node: ast.Call) -> str:
        """getattr, setattr, delattr."""
        if len(node.args) < 2:
            return ""
        owner, name = node.args[0], node.args[1]
        if isinstance(owner, ast.Name) and owner.id == "self":
            return ""
        if not (isinstance(name, ast.Constant) and isinstance(name.value, str)):
            return f"puts an attribute's name together ({ast.unparse(node)[:80]})"
        if name.value.startswith("_"):
            return f"calls {ast.unparse(node)[:80]}"
        changes = isinstance(node.func, ast.Name) and node.func.id != "getattr"
        return f"calls {ast.unparse(node)[:80]}" if changes and self._names.path(owner) else ""

    def _class(self, node: ast.ClassDef) -> Iterator[str]:
        bases = [self._names.path(base) or ast.unparse(base) for base in node.bases]
        if any(base in _LYING for base in bases):
            yield f"defines a class that imitates a {next(base for base in bases if base in _LYING)}"
        if any(
            base.endswith(
                ("torch.Tensor", "nn.Parameter", "TorchFunctionMode", "TorchDispatchMode", "fakegpu_lab.Trace")
            )
            for base in bases
        ):
            yield f"defines a class of {', '.join(bases)}"
        if any(keyword.arg is None or keyword.arg == "metaclass" for keyword in node.keywords) or any(
            base == "type" or base.startswith("type(") for base in bases
        ):
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


def _is_hidden(path: str) -> bool:
    """Whether a path leads to what an answer should not use."""
    words = path.replace("()", "").split(".")
    for length in range(1, len(words)):
        parts = allowed.PARTS.get(".".join(words[:length]))
        if parts is not None and words[length] not in parts:
            return True
    return any(path == one or path.startswith(f"{one}.") for one in allowed.HIDDEN)


def _is_module(path: str) -> bool:
    return bool(path) and ("." not in path or path in allowed.PARTS)


def _arguments(node: ast.Call) -> str:
    return ", ".join(map(ast.unparse, [*node.args, *(keyword.value for keyword in node.keywords)]))


def _is_function(node: ast.expr, functions: set[str]) -> bool:
    return isinstance(node, ast.Lambda) or (isinstance(node, ast.Name) and node.id in functions)


def _is_true(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is True


def _of_machine(text: str) -> bool:
    """Whether an expression reaches the machine, as ``machine().…`` or ``….devices[0]`` does."""
    return any(word in text for word in ("machine", "device", "fakegpu", "trace")) or text == "lab"
