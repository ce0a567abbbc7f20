"""The names that a cell binds: at its top level, by whatever statement."""

from __future__ import annotations

import ast

import pytest

from fakegpu_lab.course.cell_text.bindings import bindings, declared_global, names
from fakegpu_lab.course.cell_text.source import binding, bound_names, class_names, read_names


@pytest.mark.parametrize(
    ("text", "bound"),
    [
        ("a = b", {"a"}),
        ("def f(x: (d := int), y=(a := 1), *, k=(b := 2)) -> (c := 3): e = 1", {"a", "b", "c", "d", "f"}),
        ("@(a := f)\nclass C((b := object), metaclass=(c := type)): d = (e := 1)", {"C", "a", "b", "c"}),
        ("g = lambda x=(a := 1): (b := 2)", {"a", "g"}),
        ("a, (b, *c) = d", {"a", "b", "c"}),
        ("a: int = 1", {"a"}),
        ("a += 1", {"a"}),
        ("a.b = a[0] = 1", set()),
        ("del a", set()),
        ("for a in b:\n    c = 1\nelse:\n    d = 2", {"a", "c", "d"}),
        ("with a as b: pass", {"b"}),
        ("import a.b, c as d", {"a", "d"}),
        ("from a import b as c, d", {"c", "d"}),
        ("def f(a, b=1):\n    c = 1", {"f"}),
        ("async def f():\n    c = 1", {"f"}),
        ("class C(B):\n    d = 1", {"C"}),
        ("a = lambda b: b", {"a"}),
        ("[a for a in b]", set()),
        ("[(c := a) for a in b]", {"c"}),
        ("if (a := b): pass", {"a"}),
        ("try:\n    a = 1\nexcept E as e:\n    b = 2", {"a", "b"}),
        (
            "match a:\n    case [b, *c]: pass\n    case {'x': d, **e}: pass\n    case _: f = 1",
            {"b", "c", "d", "e", "f"},
        ),
    ],
)
def test_names_that_statements_bind(text: str, bound: set[str]) -> None:
    assert names(ast.parse(text)) == bound
    assert bound_names(text) == bound


def test_with_their_lines_and_statements() -> None:
    assert list(bindings(ast.parse("a = 1\ndef f():\n    b = 2\nimport c"))) == [("a", 1), ("f", 2), ("c", 4)]
    (found,) = binding(ast.parse("a = 1"))
    assert found == ("a", ast.dump(ast.parse("a = 1").body[0]))
    assert list(binding(None)) == []


def test_definitions_alone() -> None:
    assert bound_names("import a\nb = 1\ndef c(): pass\nclass D: pass", definitions_only=True) == {"a", "c", "D"}
    assert bound_names("this is no Python") == set()


def test_functions_may_bind_names_around_them() -> None:
    assert declared_global(ast.parse("def f():\n    global a, b\n    a = 1")) == {"a", "b"}


def test_classes_by_their_qualified_names() -> None:
    text = "%%exercise a\nclass A:\n    class B: pass\ndef f():\n    if x:\n        class C: pass"
    assert class_names(text) == {"A", "A.B", "f.<locals>.C"}
    assert class_names("this is no Python") == set()


def test_a_check_reads_what_the_lesson_s_functions_read() -> None:
    given = ["data = [1]\nsize = 2\nother = 3", "def total(size):\n    more = data\n    return helper(more)",
             "def helper(x):\n    return x + other", "def unused():\n    return unread\nunread = 5"]  # fmt: skip
    assert read_names(["%%check a\nexpect.equal(total(1), 2)"], given, []) == {"total", "helper", "data", "other"}
    answers = ["data[0] = 3", "other = 4", "helper.name.x = 1"]
    assert read_names(["%%check a\nexpect.equal(total(1), 2)"], given, answers) == {"total"}


def test_names_of_a_check_s_own_scopes_are_not_the_lesson_s() -> None:
    given = ["scale = before = rank = 1\nx = 2", "class Asking:\n    size = x"]
    check = (
        "%%check a\nexpect.equal([scale for scale in (1, 2)], [before])\n{scale: rank for scale, rank in {}}\n"
        "def f(rank):\n    before = rank\n"
        "    return Asking\nbefore = 2"
    )
    assert read_names([check], given, []) == {"Asking", "x"}
    assert read_names(["this is no Python", "expect.equal(rank, 1)"], [*given, "nor is this"], []) == {"rank"}
