"""Reads a pickle that consists of plain data, and nothing else: dicts, lists, tuples, texts, numbers.

Python's `pickle` is a program that the file's author wrote: it can import and call anything, and even without imports
it can be made to take any amount of memory. So this is not Python's unpickler with something forbidden. It knows the
instructions that build plain data (protocols 2 to 5), and refuses every other.
"""

from __future__ import annotations

import struct
from typing import Any

MOST_INSTRUCTIONS = 200_000_000
"""The most instructions of a pickle; a snapshot of 100 MB has about 30 millions."""
_LONGEST_NUMBER = 16
"""Bytes of an integer."""


class PlainPickleError(Exception):
    """A pickle that is damaged, or that is more than plain data; the message continues a sentence."""


_CALLS = {
    0x63: "imports a name (GLOBAL)", 0x93: "imports a name (STACK_GLOBAL)", 0x52: "calls something (REDUCE)",
    0x81: "makes an object (NEWOBJ)", 0x92: "makes an object (NEWOBJ_EX)", 0x69: "makes an object (INST)",
    0x6F: "makes an object (OBJ)", 0x62: "changes an object (BUILD)", 0x50: "refers to something outside (PERSID)",
    0x51: "refers to something outside (BINPERSID)", 0x82: "calls something (EXT1)", 0x83: "calls something (EXT2)",
    0x84: "calls something (EXT4)", 0x97: "uses a buffer outside (NEXT_BUFFER)",
}  # fmt: skip


def loads(data: bytes) -> Any:
    """Return the data of a pickle.

    Raises
    ------
    PlainPickleError
        It is damaged, or it does more than building plain data.
    """
    try:
        return _loads(data)
    except (IndexError, struct.error, UnicodeDecodeError):
        raise PlainPickleError("it ends in the middle, or is damaged") from None
    except (TypeError, AttributeError, KeyError):
        raise PlainPickleError("its instructions do not fit together") from None


def _loads(data: bytes) -> Any:  # one loop: a call for each of millions of instructions would take most of the time
    stack: list[Any] = []
    marks: list[list[Any]] = []
    memo: list[Any] = []
    far: dict[int, Any] = {}  # numbers that older protocols choose themselves
    at, end, left = 0, len(data), MOST_INSTRUCTIONS
    u16, u32, u64 = struct.Struct("<H").unpack_from, struct.Struct("<I").unpack_from, struct.Struct("<Q").unpack_from
    i32, f64 = struct.Struct("<i").unpack_from, struct.Struct(">d").unpack_from
    while True:
        left -= 1
        if left < 0:
            raise PlainPickleError(f"it has more than {MOST_INSTRUCTIONS:,} instructions")
        code = data[at]
        at += 1
        if code == 0x94:  # MEMOIZE
            memo.append(stack[-1])
        elif code == 0x68:  # BINGET
            number = data[at]
            at += 1
            stack.append(far[number] if number in far else memo[number])
        elif code == 0x6A:  # LONG_BINGET
            (number,) = u32(data, at)
            at += 4
            stack.append(far[number] if number in far else memo[number])
        elif code == 0x8C:  # SHORT_BINUNICODE
            size = data[at]
            at += 1
            stack.append(_text(data, at, size))
            at += size
        elif code == 0x4B:  # BININT1
            stack.append(data[at])
            at += 1
        elif code == 0x4D:  # BININT2
            stack.append(u16(data, at)[0])
            at += 2
        elif code == 0x4A:  # BININT
            stack.append(i32(data, at)[0])
            at += 4
        elif code == 0x8A:  # LONG1
            size = data[at]
            at += 1
            if size > _LONGEST_NUMBER:
                raise PlainPickleError(f"it has an integer of {size} bytes")
            stack.append(int.from_bytes(_part(data, at, size), "little", signed=True))
            at += size
        elif code == 0x28:  # MARK
            marks.append(stack)
            stack = []
        elif code == 0x75:  # SETITEMS
            items = stack
            stack = marks.pop()
            target = stack[-1]
            if type(target) is not dict or len(items) % 2:
                raise PlainPickleError("its instructions do not fit together")
            target.update(zip(items[::2], items[1::2], strict=True))
        elif code == 0x65:  # APPENDS
            items = stack
            stack = marks.pop()
            if type(stack[-1]) is not list:
                raise PlainPickleError("its instructions do not fit together")
            stack[-1].extend(items)
        elif code == 0x7D:  # EMPTY_DICT
            stack.append({})
        elif code == 0x5D:  # EMPTY_LIST
            stack.append([])
        elif code == 0x61:  # APPEND
            item = stack.pop()
            if type(stack[-1]) is not list:
                raise PlainPickleError("its instructions do not fit together")
            stack[-1].append(item)
        elif code == 0x73:  # SETITEM
            item = stack.pop()
            key = stack.pop()
            if type(stack[-1]) is not dict:
                raise PlainPickleError("its instructions do not fit together")
            stack[-1][key] = item
        elif code == 0x71:  # BINPUT
            far[data[at]] = stack[-1]
            at += 1
        elif code == 0x72:  # LONG_BINPUT
            far[u32(data, at)[0]] = stack[-1]
            at += 4
        elif code == 0x58:  # BINUNICODE
            (size,) = u32(data, at)
            stack.append(_text(data, at + 4, size))
            at += 4 + size
        elif code == 0x8D:  # BINUNICODE8
            (size,) = u64(data, at)
            stack.append(_text(data, at + 8, size))
            at += 8 + size
        elif code == 0x47:  # BINFLOAT
            stack.append(f64(data, at)[0])
            at += 8
        elif code == 0x4E:  # NONE
            stack.append(None)
        elif code in (0x88, 0x89):  # NEWTRUE, NEWFALSE
            stack.append(code == 0x88)
        elif code == 0x29:  # EMPTY_TUPLE
            stack.append(())
        elif code in (0x85, 0x86, 0x87):  # TUPLE1, TUPLE2, TUPLE3
            size = code - 0x84
            if len(stack) < size:
                raise PlainPickleError("its instructions do not fit together")
            stack[-size:] = [tuple(stack[-size:])]
        elif code == 0x74:  # TUPLE
            items = stack
            stack = marks.pop()
            stack.append(tuple(items))
        elif code == 0x43:  # SHORT_BINBYTES
            size = data[at]
            stack.append(_part(data, at + 1, size))
            at += 1 + size
        elif code == 0x42:  # BINBYTES
            (size,) = u32(data, at)
            stack.append(_part(data, at + 4, size))
            at += 4 + size
        elif code == 0x95:  # FRAME
            at += 8
        elif code == 0x80:  # PROTO
            at += 1
        elif code == 0x2E:  # STOP
            if at != end or len(stack) != 1 or marks:
                raise PlainPickleError("its instructions do not fit together")
            return stack[0]
        elif code in _CALLS:
            raise PlainPickleError(f"it {_CALLS[code]}, which no snapshot does; nothing of it was executed")
        else:
            raise PlainPickleError(f"it has the instruction {code:#04x}, which no snapshot has")


def _part(data: bytes, at: int, size: int) -> bytes:
    found = data[at : at + size]
    if len(found) != size:
        raise IndexError(at)
    return found


def _text(data: bytes, at: int, size: int) -> str:
    return _part(data, at, size).decode("utf-8", "surrogatepass")
