"""Canaries: statements among those of a check of which the grader knows what they come to, chosen at random each time.

A submission in whose process one of them comes to something else has changed what checks rely on: comparisons,
builtins, `expect`, or recordings.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from fakegpu_lab.course.expect.seeing.seen import SeenTrace

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


def plain(random: Random) -> Canary:
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
        return Canary(f"expect.true({expression}, '{b}')", "condition", lambda seen: seen is value)
    function = random.choice(["equal", "close"])
    return Canary(f"expect.{function}({expression}, {b})", "found", lambda seen: same(seen, value))


def recorded(random: Random) -> Canary:
    """One that records a few kernels and copies on the first GPU."""
    kernels, copies, size = random.randrange(1, 9), random.randrange(1, 9), random.randrange(1, 400)
    function = random.choice(["kernels", "transfers", "no_races", "takes"])
    run = f"[torch.ones({size}, dtype=torch.float32).to('cuda') for _ in range({copies})][0]"
    for _ in range(kernels):
        run += ".neg()"
    more = "at_most='1 s', " if function == "takes" else ""

    def right(seen: Any) -> bool:
        if not isinstance(seen, SeenTrace):
            return False
        sent = [one.nbytes for one in seen.transfers if one.kind == "h2d"]
        ran = [one for one in seen.kernels if "neg" in one.name]
        return sent == [4 * size] * copies and len(ran) == len(seen.kernels) == kernels and seen.elapsed > 0

    return Canary(f"expect.{function}({more}trace=lambda: {run})", "trace", right)


def same(seen: Any, value: Any) -> bool:
    """Whether two plain values are the same, and of the same types throughout."""
    if type(seen) is not type(value):
        return False
    if isinstance(value, list):
        return len(seen) == len(value) and all(map(same, seen, value))
    if isinstance(value, dict):
        return list(seen) == list(value) and all(same(seen[key], value[key]) for key in value)
    return bool(seen == value)
