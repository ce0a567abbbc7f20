"""Answers of different students that are nearly the same, side by side. It is no verdict: short answers look alike.

Answers are compared as trees, without comments, texts for people, and the names that a student chose. What most of the
class wrote, or the lesson gives, is left out: it says nothing about two of them.
"""

from __future__ import annotations

import ast
import builtins
import difflib
import itertools
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from fakegpu_lab.course.cell_text.source import bound_names, tree_of

if TYPE_CHECKING:
    from fakegpu_lab.course.grade.graded_lesson import GradedLesson
    from fakegpu_lab.course.grade.outcome import Outcome

NEARLY = 0.9
"""From which share of equal parts two answers are shown."""
LEAST = 30
"""Parts of a tree; shorter answers are alike by themselves."""
COMMON = 0.25
"""The share of a class that may have written the same; what more have written is the obvious answer."""


class Group(NamedTuple):
    """Students whose answers to an exercise are nearly the same.

    Attributes
    ----------
    answers
        Each student's name and answer, sorted by name.
    share
        The share of equal parts, from 0 to 1, of the two that are most alike.
    """

    exercise: str
    answers: list[tuple[str, str]]
    share: float


class _Plain(ast.NodeTransformer):
    """Numbers the names that an answer chose, and leaves out what it says to people."""

    def __init__(self, own: set[str]) -> None:
        self._own = own
        self._names: dict[str, str] = {}

    def _named(self, name: str) -> str:
        return self._names.setdefault(name, f"v{len(self._names)}") if name in self._own else name

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return ast.Name(self._named(node.id), node.ctx)

    def visit_arg(self, node: ast.arg) -> ast.AST:
        return ast.arg(self._named(node.arg))

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        self.generic_visit(node)
        node.name, node.returns = self._named(node.name), None
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        self.generic_visit(node)
        return ast.Assign([node.target], node.value) if node.value is not None else node

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        value = node.value
        printed = isinstance(value, ast.Call) and ast.unparse(value.func) in ("print", "display")
        if printed or isinstance(value, ast.Constant):
            return None
        self.generic_visit(node)
        return node


def parts(source: str) -> tuple[str, ...]:
    """An answer's tree, written as its nodes in order; nothing if it is no Python."""
    tree = tree_of(source)
    if tree is None:
        return ()
    inner = {one.arg for one in ast.walk(tree) if isinstance(one, ast.arg)}
    stored = {one.id for one in ast.walk(tree) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)}
    plain = _Plain((bound_names(source) | inner | stored) - set(dir(builtins))).visit(tree)
    return tuple(_words(plain))


def _words(node: ast.AST) -> list[str]:
    about = [str(value) for name, value in ast.iter_fields(node) if isinstance(value, (str, int, float, bool, bytes))]
    words = [" ".join([type(node).__name__, *about])]
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.expr_context):
            words += _words(child)
    return words


def groups(lesson: GradedLesson, outcomes: list[Outcome]) -> list[Group]:
    """The students whose answers are nearly the same, by exercise, the most similar first. Nobody is in two of them."""
    found = []
    for cell in lesson.cells:
        if cell.solution and cell.cell_type == "code":
            found += _groups(cell.grade_id, {parts(cell.visible), parts(cell.source)}, outcomes)
    return sorted(found, key=lambda one: (-one.share, one.exercise, one.answers))


def _groups(exercise: str, given: set[tuple[str, ...]], outcomes: list[Outcome]) -> list[Group]:
    answers = [
        (outcome.student, cell.source, words)
        for outcome in outcomes
        for cell in outcome.cells
        if cell.id == exercise and len(words := parts(cell.source)) >= LEAST and words not in given
    ]
    counts = Counter(words for _, _, words in answers)
    most = max(2, COMMON * len(outcomes))
    rare = [one for one in answers if counts[one[2]] <= most]
    group = list(range(len(rare)))  # by answer
    shares: dict[int, float] = {}  # by group
    for (i, (_, _, a)), (j, (_, _, b)) in itertools.combinations(enumerate(rare), 2):
        if share := _share(a, b):
            joined, left = sorted((group[i], group[j]))
            group = [joined if one == left else one for one in group]
            shares[joined] = max(share, shares.get(joined, 0.0), shares.get(left, 0.0))
    return [
        Group(exercise, sorted(rare[i][:2] for i, one in enumerate(group) if one == number), share)
        for number, share in shares.items()
        if number in group
    ]


def _share(a: tuple[str, ...], b: tuple[str, ...]) -> float:
    """The share of equal parts of two answers, if they are nearly the same; else zero."""
    if min(len(a), len(b)) < NEARLY * max(len(a), len(b)):
        return 0.0
    matcher = difflib.SequenceMatcher(None, a, b, autojunk=False)
    if matcher.quick_ratio() < NEARLY:
        return 0.0
    share = matcher.ratio()
    return share if share >= NEARLY else 0.0
