"""The tables of cases for test_placement.py: their tensors, how a line is read, and what a verdict stands for."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from fakegpu_lab.driver.base.cuda_messages import TORCH_VERSION

SAME = "Expected all tensors to be on the same device, but "
INDICES = "indices should be either on cpu or on the same device as the indexed tensor ({here})"


@dataclass(frozen=True)
class Verdict:
    """What an expression comes to: an error's type and text, or where its result is."""

    error: str | None = None
    text: str = ""
    device: str = "{here}"


@dataclass(frozen=True)
class Case:
    """A line: an expression, its verdict where the second device is the CPU, and where it is cuda:1."""

    expression: str
    cpu: Verdict
    cuda: Verdict

    @property
    def has_second_device(self) -> bool:
        """Whether it names something that is there; a case may also make its CPU tensors itself."""
        return "elsewhere" in self.expression or any(name.isupper() for name in tensors(self.expression, "cpu", "cpu"))


def verdict(text: str, there: str) -> Verdict:
    """Read one verdict; the head of placement_cases.txt says what they are."""
    if text.startswith("ok"):
        return Verdict(device={"ok": "{here}", "ok there": "{there}"}.get(text, text.removeprefix("ok on ")))
    if text == "two" or (text == "two, there first" and there == "cpu"):
        return Verdict("RuntimeError", SAME + "found at least two devices, {here} and {there}!")
    if text == "two, there first":
        return Verdict("RuntimeError", SAME + "found at least two devices, {there} and {here}!")
    kind, _, rest = text.partition(" ")
    before, _, since = kind.partition("/")
    if before == "says":
        return Verdict(since if since and TORCH_VERSION >= (2, 15) else "RuntimeError", rest)
    if kind.endswith("Error"):
        return Verdict(kind, rest)
    kernel, argument, *here = text.replace(":", "").split()
    where, others = ("{here}", "{there}") if here else ("{there}", "{here}")
    return Verdict(
        "RuntimeError",
        f"{SAME}got {argument} is on {where}, different from other tensors on {others} "
        f"(when checking argument in method wrapper_CUDA_{kernel})",
    )


_SHORT = {
    "scalar": "ok | two",
    "scalar, there first": "ok | two, there first",
    "cpu index": f"ok | says {INDICES}",
}


def read(name: str) -> list[Case]:
    """The cases of a table."""
    lines = (Path(__file__).parent / name).read_text("utf-8").splitlines()
    cases = []
    for line in lines:
        if line.strip() and not line.startswith("#"):
            expression, _, text = (part.strip() for part in line.partition("  =>  "))
            cpu, _, cuda = _SHORT.get(text, text).partition(" | ")
            cases.append(Case(expression, verdict(cpu, "cpu"), verdict(cuda or cpu, "cuda:1")))
    return cases


def _base() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator)

    return {
        "a": normal(3, 4), "b": normal(3, 4), "v": normal(4), "u": normal(4), "m": normal(4, 5), "n": normal(4, 5),
        "o": normal(3, 5), "sq": torch.eye(4) * 3 + normal(4, 4) * 0.1, "s": torch.tensor(2.0), "z": torch.tensor(1),
        "i": torch.tensor([0, 2, 1]), "k": normal(3, 4) > 0, "t": torch.tensor([1, 0, 3]),
        "q": torch.tensor([[0, 1], [2, 3], [1, 0]]), "p": torch.rand(3, 4, generator=generator),
        "x3": normal(2, 3, 4), "y3": normal(2, 4, 5), "seq": normal(2, 3, 8), "img": normal(2, 3, 8, 8),
        "ker": normal(5, 3, 3, 3), "c5": normal(5), "c3": normal(3), "vol": normal(1, 2, 4, 4, 4),
        "ker3": normal(3, 2, 2, 2, 2), "sig": normal(2, 3, 8), "ker1": normal(4, 3, 3),
        "grid": normal(2, 4, 4, 2).clamp(-1, 1), "h": normal(3, 4).half(), "mh": normal(4, 5).half(),
        "d": normal(3, 4).double(), "ints": torch.arange(12).reshape(3, 4), "e": normal(10, 6),
        "tok": torch.tensor([[1, 2], [3, 4]]), "off": torch.tensor([0, 2]), "qq": normal(2, 2, 3, 4),
        "cx": torch.complex(normal(3, 4), normal(3, 4)), "srt": torch.tensor([-1.0, 0.0, 1.0]),
        "kt": normal(3, 5, 3, 3), "one": normal(1), "two": normal(1, 1),
    }  # fmt: skip


BASE = _base()


def tensors(expression: str, here: str, there: str) -> dict[str, torch.Tensor]:
    """The tensors that an expression names: lower case here, upper case there."""
    found: dict[str, torch.Tensor] = {}
    for name in set(re.findall(r"\b[A-Za-z]\w*\b", expression)):
        base = BASE.get(name.lower())
        if base is not None:
            found[name] = base.clone().to(here if name in BASE else there)
    return found


def run(expression: str, here: str, there: str) -> tuple[Any, dict[str, torch.Tensor]]:
    """The value of an expression (a statement's is that of `result`), and its tensors afterwards."""
    torch.manual_seed(0)
    found = tensors(expression, here, there)
    names: dict[str, Any] = {
        "torch": torch,
        "nn": nn,
        "F": nn.functional,
        "on": lambda module: module.to(here),
        "elsewhere": lambda module: module.to(there),
        **found,
    }
    try:
        code = compile(expression, "<case>", "eval")
    except SyntaxError:
        exec(compile(expression, "<case>", "exec"), names)
        return names.get("result"), found
    return eval(code, names), found
