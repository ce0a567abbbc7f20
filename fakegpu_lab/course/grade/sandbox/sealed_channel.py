"""Sealed messages between grader and submission: code that finds the pipe can neither read nor forge them.

Both ends have the key before the submission's code runs. A message is a line: its text and an HMAC over text and
number. What goes down, to the submission, has hidden tests in it, and is encrypted with a keystream of SHA-256. That is
enough against code that runs for minutes in the same process and does not have the key; it is not meant to keep secrets
for longer.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from typing import Any

from fakegpu_lab.formatting.printable import encodable

_dumps, _loads = json.dumps, json.loads
"""Kept before the submission runs, which could replace them."""


def _keystream(key: bytes, direction: bytes, number: int, length: int) -> bytes:
    blocks = (length + 31) // 32
    begin = key + direction + number.to_bytes(8, "big")
    return b"".join(hashlib.sha256(begin + block.to_bytes(8, "big")).digest() for block in range(blocks))[:length]


def _xor(text: bytes, stream: bytes) -> bytes:
    return (int.from_bytes(text, "big") ^ int.from_bytes(stream, "big")).to_bytes(len(text), "big")


def seal(key: bytes, direction: bytes, number: int, message: dict[str, Any]) -> bytes:
    """Return `message` as a line, the `number`-th in its `direction`."""
    text = _dumps(message).encode()
    secret = _xor(text, _keystream(key, direction, number, len(text))) if direction == b"down" else text
    mac = hmac.new(key, direction + number.to_bytes(8, "big") + secret, "sha256").digest()
    return base64.b64encode(mac + secret) + b"\n"


def unseal(key: bytes, direction: bytes, number: int, line: bytes) -> dict[str, Any] | None:
    """Return a line's message; None if it is not the `number`-th line that the other end sealed."""
    try:
        raw = base64.b64decode(line.strip(), validate=True)
    except ValueError:
        return None
    mac, secret = raw[:32], raw[32:]
    expected = hmac.new(key, direction + number.to_bytes(8, "big") + secret, "sha256").digest()
    if not hmac.compare_digest(mac, expected):
        return None
    text = _xor(secret, _keystream(key, direction, number, len(secret))) if direction == b"down" else secret
    message: dict[str, Any] = data(text.decode())
    return message


def data(text: str) -> Any:
    r"""Read JSON. Texts in it can be written to files afterwards, as half a character (``"\ud800"``) cannot."""
    return encodable(_loads(text)) if r"\ud" in text else _loads(text)
