"""Flags for what an instructor should look at in a submission's source. They cost no points: it may be honest.

A cell is parsed, never run. `allowed` lists what honest answers use; the rest is flagged with its line. A rule is a
method of `_Cell`, named after the kind of node that it looks at.
"""

from __future__ import annotations

import ast
import builtins
import itertools
import re
import string
import sys
from typing import TYPE_CHECKING

from fakegpu_lab.course.cell_text.bindings import DEFINITIONS, declared_global, names, names_anywhere
from fakegpu_lab.course.cell_text.source import MOST_COMMANDS, binding, root_of, syntax_error, tree_of
from fakegpu_lab.course.cell_text.source import commands as commands_in
from fakegpu_lab.course.flags import allowed, commands, public
from fakegpu_lab.course.flags.names import Names, TooMuchError, names_loaded, parameters_of, without_getattr
from fakegpu_lab.course.flags.shared import Shared

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

LONGEST = 100_000
"""Characters of a cell; a longer one is flagged, not read."""
UNREADABLE = "is no Python that can be read"
"""Said of a cell in which Python, too, must find an error: otherwise it is another text that has run."""
_SECRET = re.compile(
    r"gradebook\.db|grades\.csv|HIDDEN TESTS|/proc/|(^|[.{\[])__\w|^(weights_only|allow_pickle)$|ext://|fakegpu_lab\.\w+\."
)
_QUIET = frozenset({"print", "help", "dir", "type", "repr", "id"})
_CONSUMES = frozenset({"all", "any", "dict", "list", "max", "min", "print", "set", "sorted", "sum", "tuple"})
_PRECISION = "computes products with another precision ({})"
_LOGS = frozenset({"warn", "log", "debug", "info", "warning", "error", "critical", "exception"})
_BY_NAME = frozenset({"getattr", "setattr", "delattr"})
_NAMESPACES = frozenset({"globals", "locals", "exec"})
_ERRORS = frozenset(
    name for name, value in vars(builtins).items() if isinstance(value, type) and issubclass(value, BaseException)
)
_HISTORY = re.compile(r"_+\d*|_i+\d*")
_FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_MODES = frozenset({"TorchFunctionMode", "TorchDispatchMode"})
_BARS = frozenset({"tqdm", "trange", "Progress"})
"""Bars of progress, which take a format string."""
_MACHINE = re.compile(r"machine|device|fakegpu|trace|^lab$")


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
    solutions
        The texts of the lesson's solutions: what they use and change, an answer may.
    compared
        Names of the lesson's values with which checks compare results: functions of answers should not read them.
    asked
        What checks read of objects: a class should not say by a method of its own which parameters it has.
    """

    def __init__(
        self,
        given: Iterable[str] = (),
        read: Iterable[str] = (),
        allow: Iterable[str] = (),
        own: Iterable[str] = (),
        solutions: Iterable[str] = (),
        compared: Iterable[str] = (),
        asked: Iterable[str] = (),
    ) -> None:
        given, solutions, asked = list(given), list(solutions), set(asked)
        self.modules = allowed.MODULES | set(own) | (allowed.THREADS if "threading" in allow else set())
        self.names = Names()
        self.used: set[str] = set()
        """Paths that the lesson itself uses."""
        self.set = {(False, name) for name in allowed.OF_TENSORS}
        """Attributes that the lesson itself sets; with whether it does so of a class, or of any other object."""
        self.looked_at = set(asked)
        """Names of attributes that its cells and checks read."""
        self.enabled, self.magics = set[str](), set[tuple[str, str]]()
        self.called: set[str] = set()
        """Names of the methods that the lesson itself calls."""
        self.lessons: set[str] = set()
        """Names that the lesson's own cells bind."""
        self.texts: set[str] = set()
        """Texts that a library may run, because they have been read; without spaces and line breaks."""
        self._statements: dict[str, set[str]] = {}
        self._builtins: set[str] = set()
        """Builtins that functions in the lesson's cells and solutions call."""
        self._read = set(read)
        solved = [tree for tree in map(tree_of, solutions) if tree is not None]
        for tree in [*filter(None, map(tree_of, given)), *solved]:
            self._learn(tree)
        self._builtins -= self.lessons
        self.compared = frozenset(compared)
        self._answers = {
            name
            for tree in solved
            for statement in tree.body
            for name in names(statement)
            if not names_loaded(statement) & self.compared or isinstance(statement, DEFINITIONS)
        }
        """Names of answers, but for those that the solution makes of what the check compares with."""
        self.one_precision = not allowed.PRECISION & {*self.called, *(name for _, name in self.set)}
        """Whether the lesson itself computes products in float32 with one precision only."""
        self.given = {name: path for name, path in self.names.paths.items() if "()" not in path}
        self._read -= set(self.given)
        self.derived: set[str] = set()
        """Names of what the answer has made of those."""
        self.in_files = False
        """Whether one of its cells has written any of them to a file."""
        defined = {one.name for tree in solved for one in ast.walk(tree) if isinstance(one, ast.FunctionDef)}
        self.lists = (allowed.LISTS & asked) - defined
        self.sets_keywords = self.unread_keywords = False
        self._shared = Shared(self.used) if any("run_ranks" in text for text in (*given, *solutions)) else None
        self.kept = self._read
        for tree in solved:
            looked = _Cell(self, tree)
            self._read = self.kept = self._read - looked.changed
        self.names.steps = 0

    def _learn(self, tree: ast.Module) -> None:
        self.names.learn(tree)
        inside = [names_loaded(one) for one in ast.walk(tree) if isinstance(one, _FUNCTION)]
        self._builtins |= set().union(*inside) & vars(builtins).keys()
        self.lessons |= names(tree)
        for name, statement in binding(tree):
            self._statements.setdefault(name, set()).add(statement)
        for node in ast.walk(tree):
            if isinstance(node, (ast.Attribute, ast.Name)) and (path := self.names.path(node)):
                self.used.add(path)
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                self.used |= (imported := set(_imported(node)))
                roots = {name.split(".")[0] for name in imported}
                self.modules |= roots - sys.stdlib_module_names  # of those that are not allowed, only what it uses
            if isinstance(node, ast.Attribute):
                self.looked_at.add(node.attr)
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                self.set.add((self.names.is_class(node.value), node.attr))
            if isinstance(node, ast.Call):
                self.called.add(getattr(node.func, "attr", ""))
                words = [one.value for one in node.args if isinstance(one, ast.Constant)]
                if len(words) == 2 and getattr(node.func, "attr", "") in commands.OF_SHELL:
                    self.magics.add((str(words[0]), str(words[1]).strip()))
                if self.names.path(node.func) == "fakegpu_lab.enable":
                    self.enabled.add(arguments(node))

    def look_ahead(self, sources: Iterable[str]) -> None:
        """Learn what names stand for in cells whose `flags` come later."""
        read = (one for one in sources if len(one) <= LONGEST and commands_in(one) <= MOST_COMMANDS)
        self.names.look_ahead(filter(None, map(tree_of, read)))

    def bring(self, module: str, source: str) -> None:
        """Learn what the names of a module stand for that was handed in."""
        tree = tree_of(source, module=True) if len(source) <= LONGEST else None
        if tree is not None:
            self.names.bring(module, tree)

    def flags(self, source: str, later: Iterable[str] = (), *, module: bool = False) -> list[str]:
        """Return what is suspicious in a cell, a phrase for each.

        Parameters
        ----------
        later
            Names that the lesson's own cells make after this one: to change them before is in vain.
        module
            Whether it is a file that was handed in, which Python reads, not IPython.
        """
        if len(source) > LONGEST:
            return [f"has {len(source):,} characters, too many to be read"]
        if commands_in(source) > MOST_COMMANDS and not module:
            return [f"has {commands_in(source)} magics and shell commands, too many to be read"]
        tree = tree_of(source, module=module)
        if tree is None:
            return [UNREADABLE if syntax_error(source, module=module) else "is nested too deeply to be read"]
        tree = without_getattr(tree)
        self.kept = self._read - set(later)
        try:
            self.names.learn(tree, own=True)
            derived = set(self._derive(tree))
            _Cell(self, tree)  # what is known at the end of a cell holds for all of it
            paths, found = self.names.paths, derived
            for reading in self.names.readings():
                self.names.paths = reading
                found |= _Cell(self, tree).found
            self.names.paths = paths
        except TooMuchError:
            return ["has names that lead too far to be read"]
        if self._shared is not None:
            brought = self.names.brought  # what a module of one's own holds is shared, too
            libraries = {name for name, path in self.names.paths.items() if path.split(".")[0] not in brought}
            found |= set(self._shared.flags(tree, libraries))
        outer = declared_global(tree)
        bound = names(tree) | outer
        own = outer | {name for name, statement in binding(tree) if statement not in self._statements.get(name, ())}
        found |= set(map(_rebound, bound & self.kept & own))
        called = bound & self._builtins
        found |= {f"gives {name} another meaning, which functions of the lesson call" for name in called}
        other = [name for name, path in self.given.items() if self.names.paths[name] != path or name in _assigned(tree)]
        found |= {f"gives {name} another meaning" for name in other if name in bound}
        return sorted(found)

    def _derive(self, tree: ast.Module) -> Iterator[str]:
        """What a cell makes of a compared value is a compared value, too: no answer should be one."""
        for statement in tree.body if self.compared else ():
            read = names_loaded(statement)
            if read & (self.compared | self.derived) and not isinstance(statement, (*_FUNCTION[:2], ast.ClassDef)):
                self.in_files |= any(map(_writes, ast.walk(statement)))
                paths = {name: self.names.paths.get(name, "") for name in _put_into(statement)}
                filled = {name for name, path in paths.items() if not path or path in self.names.brought}
                self.derived |= names(statement) | filled
                made = f"with {min(read & (self.compared | self.derived))}, with which the check compares the result"
                for name in sorted(names(statement) & self._answers):
                    yield f"line {statement.lineno} makes {name} {made}"
                for target in filter(_is_item_of, ast.walk(statement)):
                    root = root_of(target)
                    if isinstance(root, ast.Name) and paths.get(root.id):
                        yield f"line {statement.lineno} fills {ast.unparse(target)[:60]} {made}"


_UNCHECKED = {"unsafe": False, "check_invariants": True}
"""Keywords of torch's ops with which they read memory without a look at their indices, with what may be given."""


class _Cell(ast.NodeVisitor):
    """One look at a cell, or at a text that a cell runs: `found` has the flags, `changed` the lesson's names."""

    def __init__(self, policy: Policy, tree: ast.AST, line: int | None = None) -> None:
        self._policy, self._names, self._line = policy, policy.names, line
        self.found: set[str] = set()
        self.changed: set[str] = set()
        self._around: list[ast.AST] = []
        self._selves: dict[ast.AST, str] = {}
        self._own = names_anywhere(tree)
        self.visit(tree)

    def visit(self, node: ast.AST) -> None:
        """Apply the rules for a node, then for what is in it."""
        rule = getattr(self, f"_{type(node).__name__.lower()}", None)
        for what in rule(node) if rule is not None else ():
            if what:
                self.found.add(f"line {self._line or getattr(node, 'lineno', 0)} {what}")
        self._around.append(node)
        self.generic_visit(node)
        self._around.pop()

    # what is used

    def _import(self, node: ast.Import | ast.ImportFrom) -> Iterator[str]:
        if self._is_in_class:
            yield "imports in a class"
        for name in _imported(node):
            if name not in self._policy.used and self._is_refused(name.removesuffix(".*")):
                yield f"imports {name}"
            elif name.endswith(".*") and (name.split(".")[0] in allowed.PARTS or not public.star(name[:-2])):
                yield f"imports all of {name[:-2]}"
        yield from (
            f"names {one.asname}"
            for one in node.names
            if one.asname and public.hidden_names(one.asname) and not _HISTORY.fullmatch(one.asname)
        )

    _importfrom = _import

    def _name(self, node: ast.Name) -> Iterator[str]:
        name, parent = node.id, self._parent
        called = isinstance(parent, ast.Call) and parent.func is node
        path = self._names.paths.get(name, "")
        known = name in self._own or name in self._policy.lessons or name in self._names.functions or path
        if isinstance(node.ctx, ast.Load) and not known:
            if hasattr(builtins, name) and name not in allowed.BUILTINS | _ERRORS | allowed.SPECIAL:
                yield f"uses {name}"
            elif public.hidden_names(name) and not _HISTORY.fullmatch(name) and name not in self._names.private:
                yield f"names {name}"
        if name in _BY_NAME and not called and isinstance(node.ctx, ast.Load):
            yield f"uses {name} as a value"
        late = self._is_in_function or self._is_in_class or self._is_in_generator
        if self._policy.compared and late and isinstance(node.ctx, ast.Load):
            reached = (self._names.reached_from(node) & self._policy.compared) - self._own
            reached |= {name} & self._policy.derived if not self._is_local(name) else set()
            yield from (f"reads {one}, with which the check compares the result" for one in sorted(reached))
        if name == "get_ipython" and not called:  # a line of IPython's is such a call
            yield "uses get_ipython"
        if path and isinstance(node.ctx, ast.Load) and not isinstance(parent, ast.Attribute):
            yield self._passes_on(node, path)
            if self._is_refused(path):
                yield f"uses {path}"
            elif (
                public.is_module(path)
                and not (called or self._may_stand or self._is_another(name))
                and not (name in self._names.starred and name in self._own | self._policy.lessons)
            ):
                yield f"passes the module {path} on"

    def _attribute(self, node: ast.Attribute) -> Iterator[str]:
        name, text, path = node.attr, ast.unparse(node.value), self._names.path(node)
        load = isinstance(node.ctx, ast.Load)
        if name in allowed.FRAMES:
            yield f"reads {name}"
        elif name in allowed.SHELL:
            yield f"changes how cells run (.{name})"
        elif (
            name in allowed.BOOKS
            and "snapshot" not in text
            and (_MACHINE.search(text) or "()" in path or name in allowed.ONLY_BOOKS)
        ):
            yield f"reaches into the simulated machine's internal records (.{name})"
        elif (
            name == "machine"
            and (not path or "()" in path)
            and not (self._is_of_self(node.value) or self._names.is_of_own_class(node.value, self._parameters))
        ):
            yield f"reaches the simulated machine ({text[:40]}.{name})"
        elif name in _BY_NAME | _NAMESPACES and load:
            yield f"uses {name} as a value"
        elif name in allowed.MODULE_NAMES or name == "get_ipython":
            yield f"reaches {text}.{name}"
        elif name in allowed.GENERATES:
            yield f"runs text as code ({name})"
        elif name in allowed.GRAPH:
            yield f"reaches into autograd's graph (.{name})"
        elif name.startswith("__"):
            if name == "__class__" and load:
                yield f"reads {name}" if self._names.path(node.value) else ""
            elif name not in allowed.SPECIAL or not load:
                yield f"reads {name}" if load else f"sets {name}"
        elif public.hidden_names(name) and not self._is_own_private(node):
            yield f"uses the private name {text[:40]}.{name}"
        elif path and not isinstance(self._parent, ast.Attribute):
            if self._is_refused(path):
                yield f"uses {path}"
            elif "()" not in path and public.is_module(path) and not self._may_stand:
                yield f"passes the module {path} on"
        elif path and self._is_refused(path):
            yield f"uses {path}"
        if name in ("format", "format_map") and load:
            yield self._formats(node)
        if load:
            yield self._of_another(node)
            yield self._passes_on(node, path)
            called = isinstance(self._parent, ast.Call) and self._parent.func is node
            if name.startswith("parse_") and name.endswith("args") and not called:
                yield f"uses {name} as a value"
            if name == "__init__" and text != "super()" and not (called and self._is_for_self(self._parent)):
                yield f"calls {text[:40]}.__init__ for another object"
        if name.startswith("register_module_"):
            yield f"sets a hook on all modules ({name})"
        if not load:
            usual = name in allowed.OF_TENSORS and name != "data"
            yield ("" if usual else self._change(node.value)) or self._assignment(node, path)

    def _is_for_self(self, call: ast.AST | None) -> bool:
        """Whether the first argument of a call is the object of the method around, or what the answer made."""
        given = call.args[0] if isinstance(call, ast.Call) and call.args else None
        return isinstance(given, ast.Name) and given.id == self._self

    def _assignment(self, node: ast.Attribute, path: str) -> str:
        """An attribute may be set of what the answer made, and of what is there to be set."""
        given = getattr(self._parent, "value", None)
        if node.attr == "grad" and isinstance(given, ast.Constant) and given.value is None:
            return ""  # what the name of a parameter stands for does not matter: no module has a `grad`
        if self._changes_precision(node.attr):
            return _PRECISION.format(node.attr)
        if node.attr in ("bar_format", "text_format"):  # of tqdm's bars and rich's columns
            texts = self._names.texts(given, self._parameters) if given is not None else None
            if texts is None or any(map(_reaches, texts)):
                return f"formats a text that is put together (.{node.attr})"
        if path:
            return "" if path.startswith(allowed.SETTINGS) else f"assigns to {ast.unparse(node)}"
        if (self._names.is_class(node.value), node.attr) in self._policy.set:
            return ""
        if node.attr in self._policy.lists or self._replaces(node.value, node.attr):
            return f"replaces the method {ast.unparse(node)[:60]}"
        if self._may_set(node.value, node.attr):
            return ""
        return f"sets {ast.unparse(node)[:60]}, which the answer did not make"

    def _may_set(self, owner: ast.expr, name: str) -> bool:
        """Whether an attribute may be set of something: of what is the answer's own.

        Of a name that the lesson reads, or that tensors and modules have, only where an object was plainly made:
        ``torch.Tensor`` can be hidden in many ways, in a list, behind a function or a method.
        """
        watched = name in self._policy.looked_at or name in public.attributes_of_tensors()
        if name in allowed.OF_TENSORS or not watched:
            return self._is_of_self(owner) or self._names.is_own(owner, self._parameters)
        if isinstance(owner, ast.Attribute) and self._is_of_self(owner.value) and isinstance(owner.value, ast.Name):
            return self._names.is_object_attribute(owner.attr)
        if isinstance(owner, ast.Name) and self._is_of_self(owner):
            return True
        return self._names.is_object(owner, self._parameters)

    def _changes_precision(self, name: str) -> bool:
        """Whether a function or a setting computes products in a precision that the lesson does not speak of."""
        return name in allowed.PRECISION and self._is_in_function and self._policy.one_precision

    def _replaces(self, owner: ast.expr, name: str) -> bool:
        """Whether an attribute stands before a method of what may be a tensor, a module or an optimizer."""
        own = self._is_of_self(owner) or self._names.is_of_own_class(owner, self._parameters)
        return name in public.methods_of_tensors() and not own

    def _passes_on(self, node: ast.expr, path: str) -> str:
        """What takes a text, or names of attributes, is called where it stands: only there is seen what it is given."""
        parent = self._parent
        called = isinstance(parent, ast.Call) and parent.func is node
        decorates = path in allowed.DECORATES and [None, *getattr(parent, "decorator_list", ())][-1] is node
        watched = path in {*allowed.COPIES_NAMES, *allowed.RUN_TEXT, *allowed.CALLED}
        if path in allowed.TYPES and not (_is_annotation(node, parent) or _is_of_isinstance(node, parent)):
            return f"passes {path} on"
        return f"passes {path} on" if watched and not (called or decorates) else ""

    @property
    def _may_stand(self) -> bool:
        """Whether a module may stand here by itself: it gets another name, that is no attribute, or is only shown."""
        match self._parent:
            case ast.Assign(targets=targets):
                return all(isinstance(one, ast.Name) for one in targets) and not self._is_in_class
            case ast.Call(func=ast.Name(id=name)):
                return name in _QUIET and name not in self._own and not self._names.binds(name)
        return False

    def _is_another(self, name: str) -> bool:
        """Whether a name stands for another thing here than for a module: it is bound to that around here, or before.

        What functions get has been looked at where they are called.
        """
        functions = [one for one in self._around if isinstance(one, _FUNCTION)]
        for function in reversed(functions):
            given = {one.arg for one in ast.walk(function.args) if isinstance(one, ast.arg)}
            body = ast.Module(function.body if isinstance(function.body, list) else [], [])
            if name in given | names(body):
                return name not in declared_global(body) and not self._names.binds_path(body, name)
        cell, *inner = self._around
        before = itertools.takewhile(lambda one: one is not inner[0], getattr(cell, "body", ()) if inner else ())
        last = [one for one in before if name in names(one)][-1:]
        plain = not functions and all(isinstance(one, (ast.Assign, ast.AnnAssign, *DEFINITIONS)) for one in last)
        return bool(last) and plain and not self._names.binds_path(last[0], name)

    @property
    def _is_in_class(self) -> bool:
        """Whether a name that is bound here is an attribute of a class."""
        scopes = [one for one in self._around if isinstance(one, (*_FUNCTION, ast.ClassDef))]
        return bool(scopes) and isinstance(scopes[-1], ast.ClassDef)

    def _is_of_self(self, node: ast.expr) -> bool:
        """Whether something is the object that the method around is called on, or what the answer put into it."""
        within = []
        while isinstance(node, (ast.Attribute, ast.Subscript)):
            within.append(node)
            node = node.value
        if not (isinstance(node, ast.Name) and node.id == self._self):
            return False
        if not within:
            self._names.of_self.add(self._around[self._method].name)  # type: ignore[attr-defined]
            return True
        first = within[-1]
        return isinstance(first, ast.Attribute) and self._names.is_own_attribute(first.attr)

    @property
    def _is_in_function(self) -> bool:
        """Whether a function is around, so that a check may run this."""
        return any(isinstance(one, _FUNCTION) for one in self._around)

    def _is_local(self, name: str) -> bool:
        """Whether a function around binds a name itself."""
        functions = [one for one in self._around if isinstance(one, _FUNCTION)]
        given = {one.arg for of in functions for one in ast.walk(of.args) if isinstance(one, ast.arg)}
        return name in given or any(
            isinstance(of.body, list) and name in names(ast.Module(of.body, [])) for of in functions
        )

    @property
    def _is_in_generator(self) -> bool:
        """Whether a generator expression is around that is kept, so that this may run later."""
        pairs = zip([None, *self._around], self._around, strict=False)
        return any(
            isinstance(one, ast.GeneratorExp)
            and not (isinstance(outer, ast.Call) and isinstance(outer.func, ast.Name) and outer.func.id in _CONSUMES)
            for outer, one in pairs
        )

    @property
    def _method(self) -> int:
        """Where the innermost method around is; -1 if there is none."""
        around = enumerate(zip(self._around, self._around[1:], strict=False), 1)
        inside = [at for at, (one, two) in around if isinstance(one, ast.ClassDef) and isinstance(two, _FUNCTION[:2])]
        return inside[-1] if inside else -1

    @property
    def _self(self) -> str:
        """The name of the object that the method around is called on; empty if it may be something else."""
        at = self._method
        if at < 0:
            return ""
        method, owner = self._around[at], self._around[at - 1]
        if method not in self._selves:
            self._selves[method] = self._first_of(method, owner)
        return self._selves[method]

    def _first_of(self, method: ast.AST, owner: ast.AST) -> str:
        """The first parameter of a method, if it stands for the object throughout."""
        assert isinstance(method, _FUNCTION[:2])
        assert isinstance(owner, ast.ClassDef)
        given = [*method.args.posonlyargs, *method.args.args]
        if not given:
            return ""
        decorators = {ast.unparse(getattr(one, "func", one)).split(".")[-1] for one in method.decorator_list}
        if "staticmethod" in decorators and method.name in allowed.OF_CONTEXT:
            of_torch = any(self._names.path(base).endswith("autograd.Function") for base in owner.bases)
            decorators -= {"staticmethod"} if of_torch else set()
        mine = {one for one in decorators if self._names.binds(one) and one not in self._names.paths}
        if mine or not decorators <= allowed.KEEPS_SELF or method.name in _plain_functions(owner):
            return ""
        name = given[0].arg
        again = [
            one
            for one in ast.walk(method)
            if (isinstance(one, ast.Name) and one.id == name and not isinstance(one.ctx, ast.Load))
            or (isinstance(one, ast.arg) and one.arg == name)
            or (isinstance(one, (ast.MatchAs, ast.MatchStar, ast.ExceptHandler)) and one.name == name)
        ]
        return name if len(again) == 1 else ""

    def _is_own_private(self, node: ast.Attribute) -> bool:
        """Whether a private attribute is one of the answer's own classes."""
        if (isinstance(node.value, ast.Name) and self._is_of_self(node.value)) or (
            ast.unparse(node.value) == "super()" and self._self
        ):
            bases = self._around[self._method - 1].bases  # type: ignore[attr-defined]
            return not bases or node.attr not in public.private_of_torch()
        own = node.attr in self._names.private and not self._names.path(node.value)
        return own and (
            self._names.is_of_own_class(node.value, self._parameters) or node.attr not in public.taken_names()
        )

    def _of_another(self, node: ast.Attribute) -> str:
        """A method that sets or reaches into its object, taken from its class: it could be given any object."""
        value = node.value
        if not self._names.may_be(node.attr) & self._names.of_self or not self._names.is_class(value):
            return ""
        call = self._parent
        if isinstance(call, ast.Call) and call.func is node and call.args:
            given = call.args[0]
            if (isinstance(given, ast.Name) and given.id == self._self) or self._names.is_own(given, self._parameters):
                return ""
        return f"takes the method {ast.unparse(node)[:60]} for another object"

    def _formats(self, node: ast.Attribute) -> str:
        """A format string must be a literal: put together, it can reach any attribute."""
        value, call = node.value, self._parent
        if isinstance(value, ast.Name) and value.id == "str" and "str" not in self._own:
            if not (isinstance(call, ast.Call) and call.func is node and call.args):
                return f"uses str.{node.attr} as a value"
            value = call.args[0]
        texts = self._names.texts(value, self._parameters)
        if texts is None:
            return f"formats a text that is put together ({ast.unparse(value)[:60]})"
        return next((f"formats attributes ({one[:60]!r})" for one in texts if _SECRET.search(one) or _reaches(one)), "")

    # what is changed

    def _subscript(self, node: ast.Subscript) -> Iterator[str]:
        if isinstance(node.ctx, (ast.Store, ast.Del)):
            yield self._change(node.value)
            yield f"changes {ast.unparse(node.value)}" if "()" in self._names.path(node.value) else ""

    def _change(self, node: ast.expr) -> str:
        """Changing, in place, what the lesson made and the check reads, under whatever name."""
        reached = self._names.reached_from(node)
        for function in self._around:
            if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
                self._names.changes.setdefault(function.name, set()).update(
                    number for number, one in enumerate(function.args.args) if one.arg in reached
                )
        reached -= self._parameters
        self.changed |= reached
        found = sorted(reached & self._policy.kept)
        return f"changes {found[0]}, which the check reads" if found else ""

    @property
    def _parameters(self) -> frozenset[str]:
        pairs = zip([None, *self._around], self._around, strict=False)
        found = (parameters_of(inner, method=isinstance(outer, ast.ClassDef)) for outer, inner in pairs)
        return frozenset().union(*found)

    # what is called

    def _call(self, node: ast.Call) -> Iterator[str]:
        path = self._names.path(node.func)
        name = path.rpartition(".")[2] or _last_name(node.func)
        named = {keyword.arg: keyword.value for keyword in node.keywords}
        if isinstance(node.func, ast.Name):
            magic = isinstance(self._parent, ast.Attribute) and self._parent.attr in commands.OF_SHELL
            if name == "get_ipython" and not magic:
                yield "uses get_ipython"
            if name in _BY_NAME:
                yield self._by_name(node)
            if name == "breakpoint" and (node.args or node.keywords):
                yield "calls breakpoint with arguments"
        if self._policy.in_files and self._is_in_function and name in allowed.READERS:
            yield f"reads a file ({name}), after a cell has written there what the check compares the result with"
        yield from self._machine(node, path)
        yield from self._making(node, path, name)
        if path in allowed.RUN_TEXT:
            yield from self._run_text(node, path, named)
        yield from self._loading(node, path, name, named)
        yield from self._copying(node, path, name, named)
        yield from self._looking(node, name, named)
        if self._is_in_function and ("with_stack" in named or (name == "profile" and None in named)):
            yield "reads where it was called from (with_stack)"
        if self._is_in_function and name in ("detect_anomaly", "set_detect_anomaly"):
            yield f"reads where it was called from ({name})"  # its warnings have the whole stack
        if self._changes_precision(name):
            yield _PRECISION.format(name)
        yield from self._formatting(node, path, name, named)
        yield from self._changing(node, path, name, named)
        yield from self._registering(node.func, path, name)
        if name in commands.OF_SHELL:
            yield commands.about(name, node.args, self._policy.magics)
            yield from self._text(commands.python_in(node), node.lineno)

    def _machine(self, node: ast.Call, path: str) -> Iterator[str]:
        """The simulated machine, and what Python collects of it."""
        if path == "fakegpu_lab.disable" or (
            path == "fakegpu_lab.enable" and arguments(node) not in self._policy.enabled
        ):
            yield f"chooses the GPUs ({ast.unparse(node)[:60]})"
        if path == "fakegpu_lab.run_ranks" and path not in self._policy.used:
            yield "starts ranks (run_ranks)"
        if path == "gc.collect" and (node.args or node.keywords):
            yield "chooses what is collected (gc.collect)"

    @staticmethod
    def _making(node: ast.Call, path: str, name: str) -> Iterator[str]:
        """Classes and functions that a call makes of texts."""
        func = node.func
        if len(node.args) == 3 and (
            name == "type"
            or (isinstance(node.args[2], (ast.Dict, ast.DictComp)) and isinstance(node.args[1], ast.Tuple))
            or (isinstance(func, ast.Call) and ast.unparse(func.func) == "type")
        ):
            yield "makes a class by type()"
        if name in ("attrgetter", "methodcaller", "new_class", *_MODES):
            yield f"uses {name}"
        if (name == "type" or path in allowed.CALLED) and _starred(node):
            yield f"calls {name} with arguments that are put together"

    def _copying(self, node: ast.Call, path: str, name: str, named: dict[str | None, ast.expr]) -> Iterator[str]:
        """What sets attributes whose names it is given."""
        into_others = path.endswith("update_wrapper") and not (
            node.args and self._names.is_own(node.args[0], self._parameters)
        )
        given = allowed.COPIES_NAMES.get(path, len(node.args))
        copied = path in allowed.COPIES_NAMES and _starred(node)
        if {"assigned", "updated"} & set(named) or len(node.args) > given or copied or into_others:
            yield f"copies attributes by their names ({name})"
        if isinstance(node.func, ast.Call) and self._names.path(node.func.func) in allowed.COPIES_NAMES:
            yield f"copies attributes by their names ({ast.unparse(node.func.func)})"
        if name == "add_argument" and not isinstance(self._parent, ast.Expr):
            yield "keeps what add_argument returns, which sets attributes by their names"
        if name.startswith("parse_") and name.endswith("args"):
            into = [*node.args[1:2], *([named["namespace"]] if "namespace" in named else [])]
            if not all(self._names.is_own(one, self._parameters) for one in into):
                yield f"sets attributes by their names ({name})"

    @staticmethod
    def _looking(node: ast.Call, name: str, named: dict[str | None, ast.expr]) -> Iterator[str]:
        """What looks at the functions around the one that calls it."""
        level = named.get("stacklevel", node.args[2] if name == "warn" and len(node.args) > 2 else ast.Constant(1))
        taken = name in _LOGS and (None in named or any(isinstance(one, ast.Starred) for one in node.args))
        if getattr(level, "value", None) not in (1, 2) or "stack_info" in named or taken:
            yield "reads where it was called from (stacklevel)"
        if name == "log" and ("log_locals" in named or None in named):  # rich's Console
            yield "shows the names of other functions (log_locals)"

    def _formatting(self, node: ast.Call, path: str, name: str, named: dict[str | None, ast.expr]) -> Iterator[str]:
        """Format strings that reach attributes."""
        put_together = f"formats a text that is put together ({name})"
        takes = name in allowed.FORMAT or name in self._names.formats or "style" in named
        if None in named and (takes or name == "basicConfig"):
            yield put_together
        bars = {name, *(self._names.path(one).rpartition(".")[2] for one in node.args)} & _BARS
        more = [one.value for one in node.keywords if one.arg is None]
        if bars and not all(map(self._names.is_written_out, more)):
            yield put_together
        if isinstance(node.func, ast.Attribute) and name in ("replace", "translate"):
            held = self._names.texts(node.func.value, self._parameters) or ()
            if any("{" in one and "." in one for one in held):
                yield put_together
        formats = [*node.args, *named.values()] if takes else []
        if name == "Progress":  # rich's: of its columns, those that are texts are formatted
            formats = [one for one in node.args if not (isinstance(one, ast.Call) and self._names.path(one.func))]
        formats += [named[key] for key in ("bar_format", "fmt") if key in named]
        for given in formats:
            texts = self._names.texts(given, self._parameters)
            if not isinstance(given, ast.Lambda) and (texts is None or any(map(_reaches, texts))):
                yield put_together

    def _changing(self, node: ast.Call, path: str, name: str, named: dict[str | None, ast.expr]) -> Iterator[str]:
        """What changes its arguments, or what it is a method of, in place."""
        func, in_place = node.func, name.endswith("_")
        if isinstance(func, ast.Attribute) and (
            name in allowed.CHANGING or name.startswith("register_") or (in_place and name[0] != "_")
        ):
            yield self._change(func.value)
            yield f"changes {ast.unparse(func.value)}" if "()" in self._names.path(func.value) else ""
        if name == "resize_" and name not in self._policy.called and "storage" in ast.unparse(func):
            yield "frees the memory of a tensor (resize_)"
        if in_place and path and node.args:  # a module's function: torch.nn.init.zeros_(weight)
            yield self._change(node.args[0])
        if "out" in named:
            yield self._change(named["out"])
        if name == "vector_to_parameters" and len(node.args) > 1:
            yield self._change(node.args[1])
        for number in self._names.changes.get(name, ()) if isinstance(func, ast.Name) else ():
            if number < len(node.args):
                yield self._change(node.args[number])

    def _registering(self, func: ast.expr, path: str, name: str) -> Iterator[str]:
        """Hooks and the like, on what the answer did not make."""
        word = path.rpartition(".")[2]
        if isinstance(func, ast.Name) and word.startswith("register") and word not in self._policy.called:
            yield f"calls {path[:60]}"
        if not name.startswith("register"):
            return
        if isinstance(func, ast.Attribute) and name not in self._policy.called:
            mine = self._is_of_self(func.value) or self._names.is_own(func.value, self._parameters)
            if name == "register" or not mine:
                yield f"calls {ast.unparse(func)[:60]}, of what the answer did not make"
        if name.startswith("register_state_dict") and "state_dict" in self._policy.lists:
            yield f"changes what state_dict says ({name})"

    def _loading(self, node: ast.Call, path: str, name: str, named: dict[str | None, ast.expr]) -> Iterator[str]:
        """Files that may run code when they are loaded, and texts that a library evaluates."""
        if not _is_true(named.get("weights_only", ast.Constant(True))) or (path == "torch.load" and None in named):
            yield "loads a file that may run code (weights_only)"
        if "allow_pickle" in named or (path == "numpy.load" and (None in named or len(node.args) > 2)):
            yield "loads a file that may run code (allow_pickle)"
        if name in ("read_pickle", "query", "eval") and isinstance(node.func, ast.Attribute) and (node.args or named):
            yield f"runs text as code ({name})"

    def _run_text(self, node: ast.Call, path: str, named: dict[str | None, ast.expr]) -> Iterator[str]:
        """What runs a text: the text is looked at, if it is one."""
        places = dict(zip(allowed.RUN_TEXT[path], node.args, strict=False)) | {
            key: value for key, value in named.items() if key in allowed.RUN_TEXT[path]
        }
        for given in places.values():
            if isinstance(given, ast.Constant) and isinstance(given.value, str):
                yield from self._text(given.value, node.lineno)
            elif not (
                isinstance(given, ast.Lambda)
                or (isinstance(given, ast.Name) and given.id in self._names.functions)
                or (isinstance(given, ast.Constant) and given.value is None)
            ):
                yield f"runs text as code ({path})"
        if None in named or _starred(node):
            yield f"runs text as code ({path})"

    def _text(self, text: str, line: int) -> Iterator[str]:
        """A text that is run as Python: the same rules hold for it."""
        if not text.strip():
            return
        tree = tree_of(text)
        if tree is None:
            yield f"runs a text that cannot be read ({text[:40]!r})"
            return
        self._policy.texts.add("".join(text.split()))
        tree = without_getattr(tree)
        self._names.learn(tree, own=True)
        inner = _Cell(self._policy, tree, line)
        self.found |= inner.found
        self.changed |= inner.changed
        self.found |= {f"line {line} {_rebound(name)}" for name in names(tree) & self._policy.kept}

    def _by_name(self, node: ast.Call) -> str:
        """getattr, setattr, delattr."""
        if _starred(node):
            return f"puts an attribute's name together ({ast.unparse(node)[:80]})"
        if len(node.args) < 2:
            return ""
        owner, name = node.args[0], node.args[1]
        if isinstance(owner, ast.Name) and owner.id == "self" and self._is_of_self(owner):
            if isinstance(name, ast.Constant) and name.value in self._policy.lists:
                return f"replaces the method self.{name.value}"
            return "" if self._is_plain(name) else f"puts an attribute's name together ({ast.unparse(node)[:80]})"
        if not (isinstance(name, ast.Constant) and isinstance(name.value, str)):
            return f"puts an attribute's name together ({ast.unparse(node)[:80]})"
        if public.hidden_names(name.value):
            return f"calls {ast.unparse(node)[:80]}"
        changes = isinstance(node.func, ast.Name) and node.func.id != "getattr"
        if (
            not changes
            or self._may_set(owner, name.value)
            or (self._names.is_class(owner), name.value) in self._policy.set
        ):
            if not changes:
                return ""
            if not self._replaces(owner, name.value):
                return self._change(owner)
        return f"calls {ast.unparse(node)[:80]}"

    def _is_plain(self, name: ast.expr) -> bool:
        """Whether the name of an attribute of one's own object is none of Python's: as far as its beginning tells."""
        first = name
        while isinstance(first, (ast.BinOp, ast.FormattedValue, ast.JoinedStr)):
            if isinstance(first, ast.JoinedStr):
                first = first.values[0] if first.values else ast.Constant("")
            else:
                first = first.left if isinstance(first, ast.BinOp) else first.value
        texts = self._names.texts(first, self._parameters)
        if texts is None:
            return isinstance(first, ast.Name) and self._is_plain_key(first.id)
        private = "__" if first is name else "_"
        return bool(texts) and all(text and not text.startswith(private) for text in texts)

    def _is_plain_key(self, name: str) -> bool:
        """Whether a name stands only for keys that a loop takes from keywords, or from a ``{…}`` that is written out.

        The keywords that a method got have been looked at where it is called.
        """
        function = next((one for one in reversed(self._around) if isinstance(one, ast.FunctionDef)), None)
        if function is None:
            return False
        inside = list(ast.walk(function))
        loops = [one for one in inside if isinstance(one, ast.For)]
        given = {function.args.kwarg.arg} if function.args.kwarg is not None else set()
        over_keywords = [one for one in loops if given and names_loaded(one.iter) == given]
        over = [one for one in loops if name in names_anywhere(one.target)]
        if any(one in over_keywords for one in over):
            used = [one for one in inside if isinstance(one, ast.Name) and one.id in given]
            self._policy.sets_keywords = True
            if len(used) != len(over_keywords) or self._policy.unread_keywords:
                return False
        return bool(over) and all(one in over_keywords or self._has_plain_keys(one.iter) for one in over)

    def _are_read(self, keywords: ast.expr) -> bool:
        """Whether the keywords that ``**`` stands for are written out, or those of a function around, for another."""
        call = self._parent
        own = isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and self._names.binds(call.func.id)
        around = [one.args.kwarg.arg for one in self._around if isinstance(one, ast.FunctionDef) and one.args.kwarg]
        passed_on = isinstance(keywords, ast.Name) and keywords.id in around
        return not own or passed_on or self._names.is_written_out(keywords)

    def _has_plain_keys(self, pairs: ast.expr) -> bool:
        """Whether something is the items of a ``{…}`` that is written out, whose keys are no names of Python's."""
        if not (isinstance(pairs, ast.Call) and isinstance(pairs.func, ast.Attribute)):
            return False
        keys = [key for one in self._names.displays(pairs.func.value) for key in one.keys]
        plain = all(isinstance(key, ast.Constant) and not str(key.value).startswith("__") for key in keys)
        return plain and self._names.is_written_out(pairs.func.value)

    # names in other positions, and texts

    def _keyword(self, node: ast.keyword) -> Iterator[str]:
        if node.arg and public.hidden_names(node.arg) and node.arg not in self._own:
            yield f"names {node.arg}"
        if node.arg in _UNCHECKED and getattr(node.value, "value", None) is not _UNCHECKED[node.arg]:
            yield f"runs an op without its checks ({node.arg})"
        if node.arg is None and not self._are_read(node.value):
            self._policy.unread_keywords = True
            if self._policy.sets_keywords:  # somewhere, keywords become the names of attributes
                yield f"names arguments by texts that are put together ({ast.unparse(node)[:60]})"
        for given in self._names.displays(node.value) if node.arg is None else ():
            for key in filter(None, given.keys):
                if not isinstance(key, ast.Constant):
                    yield f"names an argument by a text that is put together ({ast.unparse(key)[:60]})"
                elif public.hidden_names(str(key.value)) and key.value not in self._own:
                    yield f"names {str(key.value)[:60]!r}"

    def _matchclass(self, node: ast.MatchClass) -> Iterator[str]:
        for name in node.kwd_attrs:
            if name.startswith("_") or name in allowed.FRAMES | allowed.BOOKS | allowed.MODULE_NAMES:
                yield f"reads {name}"

    def _constant(self, node: ast.Constant) -> Iterator[str]:
        if not isinstance(node.value, str):
            return
        if _SECRET.search(node.value) and node.value not in allowed.SPECIAL:
            yield f"names {node.value[:60]!r}"
        elif "{" in node.value and _reaches(node.value):
            yield f"formats attributes ({node.value[:60]!r})"
        elif node.value == "bar_format" or (
            _is_piece(node.value) and not self._is_shown(node) and getattr(self._parent, "arg", "") != "style"
        ):
            yield f"formats a text that is put together ({node.value[:60]!r})"

    def _is_shown(self, node: ast.Constant) -> bool:
        """Whether a text is only shown, not a format of anything: a comment in quotes, a printed line, a label."""
        calls = [one.func for one in self._around if isinstance(one, ast.Call)]
        return isinstance(self._parent, ast.Expr) or any(_last_name(func) in allowed.SHOW for func in calls)

    def _annotation(self, node: ast.expr | None) -> Iterator[str]:
        """An annotation that is a text: libraries evaluate it."""
        for one in ast.walk(node) if node is not None else ():
            if isinstance(one, ast.Constant) and isinstance(one.value, str) and not one.value.isidentifier():
                yield from self._text(one.value, one.lineno)

    def _arg(self, node: ast.arg) -> Iterator[str]:
        yield from self._annotation(node.annotation)

    def _annassign(self, node: ast.AnnAssign) -> Iterator[str]:
        yield from self._annotation(node.annotation)

    def _functiondef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[str]:
        yield from self._annotation(node.returns)
        if node.name.startswith("__") and node.name not in allowed.SPECIAL and node.name.endswith("__"):
            yield f"defines {node.name}"

    _asyncfunctiondef = _functiondef

    def _classdef(self, node: ast.ClassDef) -> Iterator[str]:
        bases = [self._names.path(base) or ast.unparse(base) for base in node.bases]
        methods = {part.name for part in node.body if isinstance(part, ast.FunctionDef)}
        caught = {one.name for one in ast.walk(node) if isinstance(one, ast.ExceptHandler) and one.name}
        parts = caught.union(*map(names, node.body))
        for name in sorted(parts - methods - {"__slots__", "__doc__"}):
            if name.startswith("__") and name.endswith("__"):
                yield f"sets {name} of a class"  # numpy, dataclasses and patterns read such names
        inherited = self._names.inherits[node.name] = frozenset().union(
            *(self._names.inherits.get(base, frozenset()) if base in self._names.classes else public.private_of(base)
              for base in bases if base != "object")
        )  # fmt: skip
        yield from (f"replaces {name} of {', '.join(bases)}" for name in sorted(parts & inherited))
        for base in bases:
            last = base.split(".")[-1].split("[")[0]
            if base in allowed.IMITATES or (last in allowed.CONTAINERS and parts & allowed.ASKED):
                yield f"defines a class that imitates a {last}"
            if base.endswith(("torch.Tensor", "nn.Parameter", *_MODES, "fakegpu_lab.Trace")):
                yield f"defines a class of {', '.join(bases)}"
            if last in allowed.FORMAT or base in self._names.formats:
                self._names.formats.add(node.name)
            if base == "type" or base.startswith("type(") or last in ("ABCMeta", "EnumMeta", "EnumType"):
                yield "defines a class with a metaclass"
        if any(keyword.arg is None or keyword.arg == "metaclass" for keyword in node.keywords):
            yield "defines a class with a metaclass"
        lists = self._policy.lists if set(bases) <= self._policy.used else allowed.LISTS
        yield from (f"defines {node.name}.{name}" for name in sorted(parts & lists))

    @property
    def _parent(self) -> ast.AST | None:
        return self._around[-1] if self._around else None

    def _is_refused(self, path: str) -> bool:
        """Whether a path of a module leads to what neither the lists nor the lesson allow."""
        if path in self._policy.used:
            return False
        path = path.partition("()")[0].rstrip(".")
        root = path.split(".")[0]
        if root not in self._policy.modules:
            return True
        return public.refused(path) and not any(path == one or one.startswith(f"{path}.") for one in self._policy.used)


def _imported(node: ast.Import | ast.ImportFrom) -> list[str]:
    """The paths of what a statement imports; ``.*`` for all of a module."""
    if isinstance(node, ast.Import):
        return [one.name for one in node.names]
    return [f"{'.' * node.level}{node.module or ''}.{one.name}" for one in node.names]


def _reaches(text: str) -> bool:
    """Whether a format string reads attributes that an answer should not."""
    try:
        fields = [field for _, field, _, _ in string.Formatter().parse(text) if field]
    except ValueError:
        return False
    words = [word for field in fields for word in re.split(r"[.\[\]]", field)[1:]]
    return any(
        word.startswith(("_", "gi_", "tb_", "cr_", "ag_", "f_")) or "%" in word or word in allowed.MODULE_NAMES
        for word in words
    )


def _is_piece(text: str) -> bool:
    """Whether a text can be a part of a format string, and none by itself: its braces do not match."""
    try:
        list(string.Formatter().parse(text))
    except ValueError:
        return "{" in text
    return False


def _assigned(tree: ast.Module) -> set[str]:
    """Names that are assigned, or defined, and not imported."""
    stored = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    return stored | {node.name for node in tree.body if isinstance(node, (ast.FunctionDef, ast.ClassDef))}


def arguments(node: ast.Call) -> str:
    """The arguments of a call, as they are written."""
    return ", ".join(map(ast.unparse, [*node.args, *(keyword.value for keyword in node.keywords)]))


def _plain_functions(owner: ast.ClassDef) -> set[str]:
    """Methods that the body of their class uses as plain functions, or makes the notebook's: ``put(torch.Tensor)``."""
    found, named = set[str](), dict[str, str]()
    for one in owner.body:
        if isinstance(one, ast.Assign) and isinstance(one.value, ast.Name):  # another name of the method
            named |= {target.id: one.value.id for target in one.targets if isinstance(target, ast.Name)}
        elif isinstance(one, _FUNCTION[:2]):
            given = one.args.defaults + [default for default in one.args.kw_defaults if default is not None]
            found |= set().union(*map(names_loaded, given))
        elif isinstance(one, (ast.Global, ast.Nonlocal)):
            found |= set(one.names)
        elif not (isinstance(one, ast.Assign) and ast.unparse(one.value).startswith("property(")):
            found |= names_loaded(one)
    return found | {method for name, method in named.items() if name in found}


def _is_annotation(node: ast.AST, parent: ast.AST | None) -> bool:
    """Whether an expression is the type of a parameter, a result or a variable; one in quotes is a statement."""
    annotations = getattr(parent, "annotation", None), getattr(parent, "returns", None)
    return isinstance(parent, ast.Expr) or node in annotations


def _is_of_isinstance(node: ast.AST, parent: ast.AST | None) -> bool:
    """Whether an expression is what `isinstance` asks for."""
    called = parent.func if isinstance(parent, ast.Call) else None
    return isinstance(called, ast.Name) and called.id == "isinstance" and node in parent.args[1:]  # type: ignore[union-attr]


def _last_name(func: ast.expr) -> str:
    """How what is called is called: ``b`` of ``a.b(…)`` and of ``b(…)``."""
    return str(getattr(func, "id", getattr(func, "attr", "")))


def _writes(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and _last_name(node.func) in allowed.WRITERS


def _put_into(statement: ast.stmt) -> set[str]:
    """The names of what a statement may put something into: `a` of ``a.b[0] = c``, ``a.append(c)``, ``f(c, out=a)``."""
    targets: list[ast.AST] = []
    for node in ast.walk(statement):
        if isinstance(node, ast.Call):
            targets += [keyword.value for keyword in node.keywords if keyword.arg in ("out", "file")]
            targets += node.args[:1] if _last_name(node.func) in allowed.PUT_INTO_FIRST else []
            targets += [node.func.value] if isinstance(node.func, ast.Attribute) else []
        elif isinstance(getattr(node, "ctx", None), ast.Store):
            targets.append(node)
    return {root.id for root in map(root_of, targets) if isinstance(root, ast.Name)}


def _is_item_of(node: ast.AST) -> bool:
    """Whether an item or an attribute of something is set."""
    return isinstance(node, (ast.Subscript, ast.Attribute)) and isinstance(node.ctx, ast.Store)


def _rebound(name: str) -> str:
    return f"gives {name}, which the check reads, another value"


def _starred(node: ast.Call) -> bool:
    return any(isinstance(one, ast.Starred) for one in node.args)


def _is_true(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is True
