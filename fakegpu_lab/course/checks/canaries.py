"""Canaries: statements among those of a check of which the grader knows what they come to, chosen at random each time.

A submission in whose process one of them comes to something else has changed what checks rely on: comparisons,
builtins, `expect`, or recordings. They are written like the check's own statements, with its own constants and
sentences, so that nothing in the process can tell which are which.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from fakegpu_lab.course.expect.plain_data.conversion import SeenTensor, SeenTrace

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random


class Canary(NamedTuple):
    """A statement, and what must be seen in it.

    Attributes
    ----------
    text
        One statement that calls ``expect`` once.
    parameter
        The parameter of the expectation that is compared.
    right
        Whether what was seen of it is as it must be.
    """

    text: str
    parameter: str
    right: Callable[[Any], bool]


_OPS = ("relu", "neg", "abs", "sigmoid", "tanh", "exp", "sqrt", "cos", "clone")


class Style:
    """How the check that canaries stand among is written: they are to look like its own statements.

    Parameters
    ----------
    tree
        The check.
    """

    def __init__(self, tree: ast.AST | None = None) -> None:
        self.constants: list[str] = []
        self.said: list[str] = []
        for node in ast.walk(tree) if tree is not None else ():
            if not (isinstance(node, ast.Call) and ast.unparse(node.func).startswith("expect.")):
                continue
            if len(node.args) > 1 and all(isinstance(one, _PLAIN) for one in ast.walk(node.args[1])):
                self.constants.append(ast.unparse(node.args[1]))
            self.said += [f", {one.arg}={ast.unparse(one.value)}" for one in node.keywords if one.arg in _SAID
                          and isinstance(one.value, ast.Constant)]  # fmt: skip

    def expected(self, random: Random, like: str) -> str:
        """What to compare with: as often what the check itself compares with as the value that it would be."""
        return random.choice([*self.constants, like] if self.constants else [like])

    def words(self, random: Random) -> str:
        """The sentences beside an expectation, or none."""
        return random.choice([*self.said, ""])


_PLAIN = (ast.Constant, ast.List, ast.Tuple, ast.UnaryOp, ast.USub, ast.Load, ast.BinOp, ast.operator)
_SAID = ("what", "hint")


def plain(random: Random, style: Style) -> Canary:
    """One that compares values: as often false as true."""
    a, b = random.sample(range(2, 10_000), 2)
    ones = [random.randrange(100) for _ in range(4)]
    other = [*ones[:3], ones[3] + 1 + random.randrange(9)]
    expressions: list[tuple[str, Any]] = [
        (f"{a} == {b}", False),
        (f"{a} - {b} <= 0 or {a} > {b}", True),
        (f"torch.equal(torch.tensor({ones}), torch.tensor({other}))", False),
        (f"torch.equal(torch.tensor({ones}), torch.tensor({ones}))", True),
        (f"torch.allclose(torch.tensor({ones}) / 1, torch.tensor({other}) / 1)", False),
        (f"bool((torch.tensor({ones}) == torch.tensor({other})).all())", False),
        (f"torch.tensor({ones}).sum().item()", sum(ones)),
        (f"(torch.tensor({ones}) - torch.tensor({other})).abs().max().item()", other[3] - ones[3]),
        (f"torch.tensor({other}).tolist()", other),
        (f"torch.tensor({other})", torch.tensor(other)),
        (f"torch.tensor({ones}) * {b} - 1.5", torch.tensor(ones) * b - 1.5),
        (f"torch.tensor([{ones}, {other}]).T.float() @ torch.tensor([[{a}.], [1.]])",
         torch.tensor([ones, other]).T.float() @ torch.tensor([[float(a)], [1.0]])),
        (f"list(torch.zeros({ones[0] + 1}, {b}).shape)", [ones[0] + 1, b]),
        (f"isinstance({a}, str) or isinstance('{b}', int)", False),
        (f"all(one > {min(ones)} for one in {ones})", False),
        (f"any(one > {max(ones)} for one in {ones})", False),
        (f"len({ones[:3]}) == 4", False),
        (f"[len('{a}'), abs(-{a}), max({a}, {b}), min({a}, {b}), sum({ones}), round({a} / 1)]",
         [len(str(a)), a, max(a, b), min(a, b), sum(ones), a]),
        (f"sorted({other}, reverse=True)", sorted(other, reverse=True)),
        (f"{{'{a}': [{b}, None], 'x': {a} / 4}}", {str(a): [b, None], "x": a / 4}),
    ]  # fmt: skip
    expression, value = random.choice(expressions)
    if isinstance(value, bool) and random.random() < 0.5:
        return Canary(f"expect.true({expression}, '{b}'{style.words(random)})", "condition", lambda seen: seen is value)
    function = random.choice(["equal", "close"])
    expected = style.expected(random, expression if random.random() < 0.5 else str(b))
    if isinstance(value, torch.Tensor):  # its values are looked at only beside another tensor's
        expected = random.choice([expression, f"torch.tensor({ones})"])
    return Canary(
        f"expect.{function}({expression}, {expected}{style.words(random)})", "found", lambda seen: same(seen, value)
    )


def recorded(random: Random, style: Style) -> Canary:
    """One that records a few kernels and copies on the first GPU."""
    ops, copies, size = (
        [random.choice(_OPS) for _ in range(random.randrange(1, 9))],
        random.randrange(1, 9),
        random.randrange(1, 400),
    )
    function = random.choice(["kernels", "transfers", "no_races", "takes"])
    made = random.choice(["torch.ones({})", "torch.zeros({})", "torch.arange({}).float()", "torch.full(({},), 0.5)"])
    run = f"[{made.format(size)}.to('cuda') for _ in range({copies})][0]" + "".join(f".{op}()" for op in ops)
    more = "at_most='1 s', " if function == "takes" else ""

    def right(seen: Any) -> bool:
        if not isinstance(seen, SeenTrace):
            return False
        sent = [one.nbytes for one in seen.transfers if one.kind == "h2d"]
        ran = [one.name.removeprefix("aten::") for one in seen.kernels]
        return sent == [4 * size] * copies and ran == ops and seen.elapsed > 0

    return Canary(f"expect.{function}({more}trace=lambda: {run}{style.words(random)})", "trace", right)


def same(seen: Any, value: Any) -> bool:
    """Whether two plain values or tensors are the same, and of the same types throughout."""
    if isinstance(value, torch.Tensor):
        told = isinstance(seen, SeenTensor) and seen.dtype == str(value.dtype) and seen.values is not None
        return told and bool(torch.equal(seen.values, value))
    if type(seen) is not type(value):
        return False
    if isinstance(value, list):
        return len(seen) == len(value) and all(map(same, seen, value))
    if isinstance(value, dict):
        return list(seen) == list(value) and all(same(seen[key], value[key]) for key in value)
    return bool(seen == value)
