"""The table of changes to torch: each attribute once, each there in the installed torch, and what happens if not."""

from __future__ import annotations

import re
import subprocess
import sys
import types
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
import torch.utils.benchmark

import fakegpu_lab as lab
from fakegpu_lab.cli import doctor
from fakegpu_lab.driver import install
from fakegpu_lab.driver.base import changes
from fakegpu_lab.driver.base.changes import Change, added, begun, replaced, wrapped
from fakegpu_lab.ranks import install as ranks

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A module of torch's, which has two functions."""
    made: Any = types.ModuleType("torch._for_changes")
    made.double, made.whole = (lambda x: 2 * x), round
    monkeypatch.setitem(sys.modules, made.__name__, made)
    yield made
    changes.patches.undo()
    changes.lacking.clear()


def test_the_installed_torch_has_all_that_is_changed_and_a_machine_makes_few_changes() -> None:
    """In a process of its own: Dynamo, Triton and numba, once imported, have changes of their own."""
    program = (
        "import fakegpu_lab as lab\nlab.enable('a100:2')\n"
        "from fakegpu_lab.driver import install\nfrom fakegpu_lab.driver.base import changes\n"
        "print([row.path for row in changes.lacking], len(install.patches))"
    )
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    lacking, _, count = told.rpartition(" ")
    assert lacking == "[]"
    assert 300 < int(count) <= 600


@pytest.mark.parametrize(("package", "rooms"), [("driver", install.ROOMS), ("ranks", ranks.ROOMS)])
def test_rows_are_only_in_rooms_where_they_are_looked_for(package: str, rooms: tuple[str, ...]) -> None:
    root = Path(lab.__file__).parent / package
    for file in root.rglob("*.py"):
        if re.search(r"^CHANGES\b", file.read_text(encoding="utf-8"), re.MULTILINE):
            name = ".".join(file.relative_to(root).with_suffix("").parts)
            assert any(name == room or name.startswith(f"{room}.") for room in rooms), (
                f"{name} is in no room of {rooms}"
            )


def test_every_row_says_why() -> None:
    assert [row for row in install.rows() if not row.why] == []
    assert len({row.path for row in install.rows()}) > 300


def test_what_torch_no_longer_has_changes_nothing_and_the_doctor_names_it(
    module: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    renamed = [
        changes.imported("torch.utils.benchmark.absent", list, "timers"),
        replaced("torch._for_changes.gone", len, "sizes"),
        wrapped("torch._absent.module.function", repr, "texts"),
    ]
    rows = [*install.rows(), *renamed]
    monkeypatch.setattr(install, "rows", lambda: rows)
    findings = list(doctor._self_test())
    (found,) = [one for one in findings if "torch._for_changes.gone" in one.text]
    assert found.grade == "no"
    assert found.text.partition(" has no ")[2] == (
        "torch.utils.benchmark.absent (timers), torch._for_changes.gone (sizes), torch._absent.module.function (texts)"
    )
    assert not hasattr(module, "gone")
    assert changes.lacking == []  # the machine is gone


def test_a_row_is_for_some_releases_of_torch(module: Any) -> None:
    changes.apply(
        [
            replaced("torch._for_changes.double", abs, "later", since="99.1"),
            replaced("torch._for_changes.whole", abs, "earlier", until="1.13"),
            added("torch._for_changes.now", 3, "now", since="2.0", until="99.0"),
            added("torch._for_changes.never", 3, "never", when=lambda: False),
        ]
    )
    assert (module.double(4), module.whole(1.6), module.now) == (8, 2, 3)
    assert not hasattr(module, "never")
    assert changes.lacking == []
    changes.patches.undo()
    assert not hasattr(module, "now")


def test_wrappers_go_around_each_other_and_all_are_undone(module: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    double, calls = module.double, []

    def adding(number: int) -> Any:
        return lambda function: lambda x: function(x) + number

    def begin() -> Any:
        calls.append("begun")
        return lambda: calls.append("ended")

    module.CHANGES = [
        wrapped("torch._for_changes.double", adding(1), "one"),
        wrapped("torch._for_changes.double", lambda function: lambda x: function(x) * 10, "ten"),
        begun(begin, "a state"),
    ]
    rows = changes.collected("torch", ["_for_changes"])
    assert [row.why for row in rows] == ["one; ten", "a state"]
    changes.apply(rows)
    assert module.double(4) == 90
    assert len(changes.patches) == 2
    changes.patches.undo()
    assert module.double is double
    assert calls == ["begun", "ended"]


@pytest.mark.parametrize("second", [replaced("torch.sin", abs, "b"), wrapped("torch.sin", repr, "b")])
def test_an_attribute_that_two_rows_change_is_refused(second: Change) -> None:
    with pytest.raises(ValueError, match=r"changed by two rows: torch\.sin"):
        changes.refuse_duplicates([replaced("torch.sin", abs, "a"), second])
    changes.refuse_duplicates([
        replaced("torch.sin", abs, "a", until="2.12"), replaced("torch.sin", abs, "b", since="2.12"),
    ])  # fmt: skip


def test_torchscript_knows_a_changed_function() -> None:
    table = torch.jit._builtins._get_builtin_table()
    before = dict(table)
    for _ in range(2):
        lab.enable("t4")
        try:
            scripted = torch.jit.script(_makes_zeros)
            assert scripted(torch.ones(3)).tolist() == [0.0, 0.0]
        finally:
            lab.disable()
        assert table == before


def _makes_zeros(x: torch.Tensor) -> torch.Tensor:
    return torch.zeros(2, dtype=x.dtype)
