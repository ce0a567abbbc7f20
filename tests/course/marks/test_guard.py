"""What a check compares is looked at first; everything else of its text stays as it is."""

from __future__ import annotations

import ast

import pytest

from fakegpu_lab.course.checks import guard

C, U, A = guard.NAMES


def used(name: str) -> str:
    """What a check computes with is named, so that it can be said what changed."""
    return f"{U}({name}, {name!r})"


@pytest.mark.parametrize(
    ("text", "guarded"),
    [
        ("a == b", f"{C}(a) == {C}(b)"),
        ("a < 3 <= b", f"{C}(a) < 3 <= {C}(b)"),
        ("3 > a", f"3 > {C}(a)"),
        ("not a", f"not {C}(a)"),
        ("-a", f"-{used('a')}"),
        ("isinstance(a, int)", f"isinstance({C}(a), {used('int')})"),
        ("bool(a)", f"bool({C}(a))"),
        ("bool()", "bool()"),
        ("float(a)", f"float({used('a')})"),
        ("a.bool(b, *c, d=e)", f"{A}(a, 'bool').bool({used('b')}, *c, d={used('e')})"),
        ("a.x = b", "a.x = b"),
        ("a[0] - b", f"{U}({used('a')}[0]) - {used('b')}"),
        ("torch.equal(a, 1)", f"torch.equal({used('a')}, 1)"),
        ("f(lambda: a == 1)", f"f(lambda: {C}(a) == 1)"),
        ("(a == b) == c", f"{C}({C}(a) == {C}(b)) == {C}(c)"),
        ("a and b", "a and b"),
    ],
)
def test_what_is_compared_is_looked_at(text: str, guarded: str) -> None:
    statement = ast.parse(text).body[0]
    assert ast.unparse(guard.guarded(statement)) == ast.unparse(ast.parse(guarded))  # 3.10 writes `lambda :`
    assert ast.dump(statement) == ast.dump(ast.parse(text).body[0]), "the check's own text is not changed"


class _NeverCopied:
    def __deepcopy__(self, memo: object) -> object:
        raise AssertionError("more than the statement was copied")


def test_only_the_statement_is_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    """What showed an error before gave the nodes that all trees share a parent, in the file of that error."""
    statement = ast.parse("expect.equal(total.sum(), 3)").body[0]
    shared = next(node for node in ast.walk(statement) if isinstance(node, ast.Load))
    monkeypatch.setattr(shared, "parent", _NeverCopied(), raising=False)
    before = ast.dump(statement, include_attributes=True)
    changed = guard.guarded(statement)
    assert ast.dump(statement, include_attributes=True) == before
    assert (changed.lineno, changed.end_col_offset) == (statement.lineno, statement.end_col_offset)
    assert ast.dump(changed) != ast.dump(statement)
