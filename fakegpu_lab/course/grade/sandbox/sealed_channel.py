"""What grader and submission tell each other, sealed: a submission that finds the pipe can neither read nor forge it.

Both ends have the key before the submission's code runs. A message is a line: its text, encrypted with a keystream of
SHA-256, and an HMAC over text and number. That is enough against code that runs for minutes in the same process and
does not have the key; it is not a way to keep secrets for longer.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from typing import Any


def _keystream(key: bytes, direction: bytes, number: int, length: int) -> bytes:
    blocks = (length + 31) // 32
    begin = key + direction + number.to_bytes(8, "big")
    return b"".join(hashlib.sha256(begin + block.to_bytes(8, "big")).digest() for block in range(blocks))[:length]


def _mixed(text: bytes, stream: bytes) -> bytes:
    return (int.from_bytes(text, "big") ^ int.from_bytes(stream, "big")).to_bytes(len(text), "big")


def seal(key: bytes, direction: bytes, number: int, message: dict[str, Any]) -> bytes:
    """Return the line that says `message`, the `number`-th in its `direction`."""
    text = json.dumps(message).encode()
    secret = _mixed(text, _keystream(key, direction, number, len(text)))
    proof = hmac.new(key, direction + number.to_bytes(8, "big") + secret, "sha256").digest()
    return base64.b64encode(proof + secret) + b"\n"


def unseal(key: bytes, direction: bytes, number: int, line: bytes) -> dict[str, Any] | None:
    """Return what a line says; None if it is not the `number`-th line that the other end has sealed."""
    try:
        raw = base64.b64decode(line.strip(), validate=True)
    except ValueError:
        return None
    proof, secret = raw[:32], raw[32:]
    right = hmac.new(key, direction + number.to_bytes(8, "big") + secret, "sha256").digest()
    if not hmac.compare_digest(proof, right):
        return None
    said: dict[str, Any] = json.loads(_mixed(secret, _keystream(key, direction, number, len(secret))))
    return said
