"""Text from elsewhere, made safe to write: into files, and onto a terminal, which obeys control characters."""

from __future__ import annotations

import re
from typing import Any

_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""All but tab and newline; also those that change the direction in which the text after them is read."""


def encodable(thing: Any) -> Any:
    r"""Return a text, or a list or dict of texts, without lone surrogates: UTF-8 cannot write these.

    >>> encodable(["a", {"b": "\ud800"}])
    ['a', {'b': '?'}]
    """
    if isinstance(thing, str):
        return thing.encode("utf-8", "replace").decode("utf-8")
    if isinstance(thing, list):
        return [encodable(item) for item in thing]
    if isinstance(thing, dict):
        return {encodable(key): encodable(item) for key, item in thing.items()}
    return thing


def printable(text: str) -> str:
    r"""Return a text in which control characters are visible, so that a terminal does not obey them.

    >>> printable("a\x1b[2Jb")
    'a\\x1b[2Jb'
    """
    return _CONTROLS.sub(lambda found: ascii(found[0])[1:-1], str(encodable(text)))
