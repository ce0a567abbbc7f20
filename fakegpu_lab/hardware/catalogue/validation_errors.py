"""Turning the errors of yaml and pydantic into one sentence that names the line or the field, and a fix."""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING, Any, get_args

from pydantic import BaseModel

from fakegpu_lab.hardware.catalogue.profile import GpuProfile

if TYPE_CHECKING:
    from pydantic import ValidationError
    from pydantic.fields import FieldInfo
    from pydantic_core import ErrorDetails
    from yaml import YAMLError


def invalid_yaml(error: YAMLError) -> str:
    """Say where a text is not valid YAML, and how to write it."""
    mark = getattr(error, "problem_mark", None)
    line = f"line {mark.line + 1}" if mark else "the file"
    problem = getattr(error, "problem", None) or "unreadable"
    return (
        f"{line} is not valid YAML ({problem}): write one `field: value` a line, indented with spaces, and put text "
        "that has a colon in quotes."
    )


def first_sentence(
    error: ValidationError, model: type[BaseModel], elsewhere: str = "what the bundled profiles have"
) -> str:
    """Explain the first problem in full, and name the other fields that have one.

    Parameters
    ----------
    error
        What pydantic raised.
    model
        The model that the file should fit.
    elsewhere
        Where to look for a valid value of a field without an example.
    """
    first, *others = sorted(error.errors(include_url=False), key=lambda one: one["type"] == "missing")
    # total_memory is filled in from memory: the same bad value must not be reported twice.
    distinct = [other for other in others if other["type"] == "missing" or other["input"] is not first["input"]]
    also = list(dict.fromkeys(_dotted(other) for other in distinct if _dotted(other) != _dotted(first)))
    if not also:
        return _sentence(first, model, elsewhere)
    more = f" and {len(also) - 3} more" if len(also) > 3 else ""
    return f"{_sentence(first, model, elsewhere)} (Also look at {', '.join(also[:3])}{more}.)"


def _dotted(problem: ErrorDetails) -> str:
    return ".".join(str(part) for part in problem["loc"])


def _sentence(problem: ErrorDetails, model: type[BaseModel], elsewhere: str) -> str:
    field = _dotted(problem)
    if problem["type"] == "extra_forbidden":
        return _unknown_field(problem, model)
    example = _example(problem, model) or elsewhere
    if problem["type"] == "missing":
        or_else = ", or take what you leave out from a known GPU with `based_on: a100`" if model is GpuProfile else ""
        return f"{field} is missing: add {example}{or_else}."
    raised = problem.get("ctx", {}).get("error")
    if raised is not None:  # one of our own validators, whose message already has a fix
        return f"{field + ': ' if field else ''}{str(raised).rstrip('.')}."
    expected = problem["msg"].replace("Input should", "it should").replace("a valid tuple", "a list")
    expected = re.sub(r"a valid dictionary.*", "a group of fields", expected)
    expected = re.sub(r"Tuple should (.*) after validation.*", r"it should \1", expected)
    return f"{field} is {problem['input']!r}, but {expected}: write, for example, {example}."


def _unknown_field(problem: ErrorDetails, model: type[BaseModel]) -> str:
    *parents, name = problem["loc"]
    owner = _owner(parents, model)
    known = [_key(field, info) for field, info in owner.model_fields.items()]
    near = difflib.get_close_matches(str(name), known, n=1)
    fix = f"did you mean `{near[0]}`?" if near else f"take it out; the fields are {', '.join(known)}."
    return f"{_dotted(problem)} is not a field: {fix}"


def _example(problem: ErrorDetails, model: type[BaseModel]) -> str:
    """Write a valid line of YAML; empty if the field has no example."""
    names = [part for part in problem["loc"] if isinstance(part, str)]
    owner = _owner(names[:-1], model)
    for field, info in owner.model_fields.items():
        if names and _key(field, info) == names[-1] and info.examples:
            return f"`{names[-1]}: {_yaml(info.examples[0])}`"
    return ""


def _key(field: str, info: FieldInfo) -> str:
    return str(info.validation_alias or field)


def _owner(parents: list[Any], model: type[BaseModel]) -> type[BaseModel]:
    """Find the nested model that a field belongs to."""
    for parent in parents:
        for field, info in model.model_fields.items():
            if _key(field, info) == parent:
                model = next(iter(_models(info.annotation)), model)
    return model


def _models(annotation: Any) -> list[type[BaseModel]]:
    if parts := get_args(annotation):  # asked first: in Python 3.10, `list[int]` is an instance of `type`
        return [model for part in parts for model in _models(part)]
    return [annotation] if isinstance(annotation, type) and issubclass(annotation, BaseModel) else []


def _yaml(value: object) -> str:
    if isinstance(value, list):
        return f"[{', '.join(_yaml(one) for one in value)}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{name}: {_yaml(one)}' for name, one in value.items())}}}"
    return str(value)
