"""Writes commands.md, the reference of all that is typed: commands, magics, lesson.yaml, profiles, variables.

Commands come from click, magics from IPython's parsers, the keys of files from their pydantic models: what their code
says stands once. ``python docs/commands.py`` writes the page, and a test compares it.
"""

from __future__ import annotations

import inspect
import types
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args, get_origin

import click
from pydantic import BaseModel, BeforeValidator

from fakegpu_lab.cli.commands import cli
from fakegpu_lab.course.lesson_magics import CourseMagics
from fakegpu_lab.course.lessons.lesson import Lesson
from fakegpu_lab.hardware.catalogue.profile import GpuProfile, HostProfile, NodeProfile
from fakegpu_lab.notebook.gpu_magics import FakeGpuMagics
from fakegpu_lab.notebook.gpuprofile import GpuProfileMagics
from fakegpu_lab.notebook.kernel import KernelMagics
from fakegpu_lab.notebook.ranks import RanksMagics

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

PAGE = Path(__file__).parent / "commands.md"

HEAD = """# Commands, magics, files and variables

This is everything that you can type outside of Python. For what a program can call, see the
[reference of the Python package](reference.md). `python docs/commands.py` writes this page from the code.
"""

VARIABLES = {
    "FAKEGPU_LAB_COMPILED_VALUES": "`triton`: kernels that `torch.compile` makes compute program by program, slowly",
    "FAKEGPU_LAB_DEBUG": "`1`: tracebacks also show the frames of this package",
    "FAKEGPU_LAB_PROGRESS": "the file with a student's progress, instead of the one beside the notebook; `off`: none",
    "FAKEGPU_LAB_RUNTIME": "the folder where running machines leave what `nvidia-smi` shows",
    "FAKEGPU_LAB_MACHINE": "written by `enable` and `fakegpu-lab run` for child processes: the machine, as JSON",
    "FAKEGPU_LAB_ID": "written for child processes: the name that all processes of a run share",
    "FAKEGPU_LAB_WORLD": "written for child processes: the sizes of the world and of a node that `plan` plans for",
    "FAKEGPU_LAB_REPORTS": "written for child processes: where each leaves what it did, for the table at the end",
}
"""The variables of this package, and what they do."""

CUDAS = {
    "CUDA_VISIBLE_DEVICES": "the GPUs that torch sees, and their order",
    "CUDA_LAUNCH_BLOCKING": "`1`: a device-side assert is raised at its own line",
    "CUBLAS_WORKSPACE_CONFIG": "the size of cuBLAS's workspaces; with `:4096:8` or `:16:8`, products are deterministic",
    "PYTORCH_CUDA_ALLOC_CONF": "settings of the caching allocator; `PYTORCH_ALLOC_CONF` is its newer name",
    "PYTORCH_NO_CUDA_MEMORY_CACHING": "with any value, memory is not cached",
    "TORCH_CUDNN_SDPA_DEPRIORITIZED": "`1`: attention takes cuDNN's kernel last",
    "NCCL_P2P_DISABLE": "`1`: GPUs exchange data through host memory",
    "TORCH_NCCL_ASYNC_ERROR_HANDLING": "`0`: `torchrun`'s ranks notice a hang later",
    "TORCH_NCCL_BLOCKING_WAIT": "`1`: waiting for a collective raises after its timeout",
    "TORCH_NCCL_NAN_CHECK": "`1`: a collective of NaN is an error",
    "TORCH_DEVICE_BACKEND_AUTOLOAD": "`0`: torch does not load this package at its start, nor do child processes",
}
"""The variables of CUDA, NCCL and PyTorch that a simulated GPU follows."""

MAGICS = (FakeGpuMagics, GpuProfileMagics, RanksMagics, KernelMagics, CourseMagics)
FILES = {
    "lesson.yaml": (
        Lesson,
        "describes a lesson, in its folder; [the page for instructors](instructors.md) explains it",
    ),
    "A GPU's profile": (GpuProfile, "describes a card: a file of yours needs only `based_on: a100` and what differs"),
    "A node's profile": (NodeProfile, "describes a machine with several GPUs and the links between them"),
    "A host's profile": (HostProfile, "describes how fast a machine's processor runs PyTorch's own work"),
}


def page() -> str:
    """The whole page."""
    parts = [HEAD, "## Commands\n"]
    parts += [_command(path, command) for path, command in commands(cli, "fakegpu-lab")]
    parts += ["## Magics\n", "`%load_ext fakegpu_lab` makes them available; `%fakegpu?` and the like show this text.\n"]
    parts += [_magic(name, function) for name, function in magics()]
    parts += ["## Files\n"]
    parts += [
        f"### {name}\n\n{'It' if ' ' in name else 'This file'} {what}.\n\n{_keys(model)}"
        for name, (model, what) in FILES.items()
    ]
    parts += ["## Environment variables\n", _table(("Variable", "What it does"), _as_code(VARIABLES))]
    parts += ["A simulated GPU also follows these variables of CUDA, NCCL and PyTorch:\n"]
    parts += [_table(("Variable", "What it does"), _as_code(CUDAS))]
    return "\n".join(parts)


def commands(group: click.Command, path: str) -> Iterator[tuple[str, click.Command]]:
    """Every command, with all that is typed to reach it."""
    yield path, group
    if isinstance(group, click.Group):
        for name, command in group.commands.items():
            yield from commands(command, f"{path} {name}")


def magics() -> Iterator[tuple[str, Any]]:
    """Every magic's name, as it is typed, and its function."""
    for owner in MAGICS:
        for kind, names in owner.magics.items():
            for name, method in names.items():
                yield (
                    {"line": "%", "cell": "%%"}[kind] + name,
                    getattr(owner, str(method)) if isinstance(method, str) else method,
                )


def _command(path: str, command: click.Command) -> str:
    context = click.Context(command, info_name=path)
    usage = " ".join([path, *command.collect_usage_pieces(context)])
    options = [
        (f"`{' '.join(param.opts)}`" + (f" {param.make_metavar(context)}" if not param.is_flag else ""), _help(param))
        for param in command.params
        if isinstance(param, click.Option)
    ]
    said = inspect.cleandoc(command.help or "").replace("\b\n", "")
    return f"### {path}\n\n```text\n{usage}\n```\n\n{_prose(said)}\n\n" + _table(("Option", "What it does"), options)


def _help(option: click.Option) -> str:
    default = option.default
    shown = option.show_default and default not in (None, False, ())
    return (option.help or "").strip() + (f" (default: `{default}`)" if shown else "")


def _magic(name: str, function: Any) -> str:
    parser = getattr(function, "parser", None)
    said = inspect.cleandoc((parser.description if parser else function.__doc__) or "")
    rows = []
    for action in parser._actions if parser else ():
        typed = ", ".join(f"`{one}`" for one in action.option_strings) or f"`{action.metavar or action.dest}`"
        if action.option_strings and action.nargs != 0:
            choices = "{" + ",".join(action.choices) + "}" if action.choices else None
            typed += f" {action.metavar or choices or action.dest.upper()}"
        rows.append((typed, action.help or ""))
    return f"### {name}\n\n{_prose(said)}\n\n" + _table(("Argument", "What it is"), rows)


def _prose(text: str) -> str:
    """A docstring as Markdown: its examples (lines of magics and code after the first paragraph) are code."""
    paragraphs = []
    for paragraph in text.strip().split("\n\n"):
        code = paragraph.lstrip().startswith(("%", "fakegpu-lab")) or paragraph.startswith("    ")
        paragraphs.append(f"```text\n{inspect.cleandoc(paragraph)}\n```" if code else paragraph.replace("``", "`"))
    return "\n\n".join(paragraphs)


def _keys(model: type[BaseModel], within: str = "") -> str:
    return _table(("Key", "Value", "Meaning"), list(keys(model, within)))


def keys(model: type[BaseModel], within: str = "") -> Iterator[tuple[str, str, str]]:
    """Every key of a file, those inside of others after a dot; its kind of value; its meaning."""
    for name, field in model.model_fields.items():
        if field.exclude or (name == "id" and not within and model is not Lesson):
            continue
        typed = f"{within}{field.validation_alias or name}"
        inner = _model(field.annotation)
        meaning = [field.description or ""]
        if field.examples:
            meaning.append(f"such as `{field.examples[0]}`")
        if not field.is_required() and field.default not in (None, (), "", 0) and inner is None:
            meaning.append(f"by default `{field.default}`")
        needed = " (required)" if field.is_required() else ""
        with_unit = any(isinstance(one, BeforeValidator) for one in field.metadata) and not get_args(field.annotation)
        kind = "text, with a unit" if with_unit else _kind(field.annotation)
        yield f"`{typed}`", kind + needed, "; ".join(filter(None, meaning))
        if inner is not None:
            yield from keys(inner, f"{typed}.")


def _model(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next(filter(None, map(_model, get_args(annotation))), None)


def _kind(annotation: Any) -> str:
    origin, inside = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        with_unit = any(isinstance(one, BeforeValidator) for one in inside[1:])
        return "text, with a unit" if with_unit and get_origin(inside[0]) is not tuple else _kind(inside[0])
    if origin is Literal:
        return " or ".join(f"`{one}`" for one in inside)
    if origin is tuple:
        return f"a list: {_kind(inside[0])}"
    if origin in (Union, types.UnionType):
        return " or ".join(_kind(one) for one in inside if one is not type(None))
    if _model(annotation):
        return "keys"
    return {bool: "true or false", int: "a number", float: "a number", str: "text"}.get(origin or annotation, "text")


def _as_code(rows: dict[str, str]) -> list[tuple[str, str]]:
    return [(f"`{name}`", what) for name, what in rows.items()]


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    if not rows:
        return ""
    lines = [head, ("---",) * len(head), *rows]
    return "".join(
        "| " + " | ".join(" ".join(cell.replace("|", "\\|").split()) for cell in line) + " |\n" for line in lines
    )


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
