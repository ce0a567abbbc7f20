"""libnvidia-ml in Python: the C functions that nvidia-ml-py calls, answered by the simulated machine.

Arguments are what nvidia-ml-py passes to ctypes: plain numbers, ctypes values, buffers, and ``byref(…)`` of what is to
be filled. A function that the simulation has no answer for is there, and says "Not Supported", as a driver does that
knows it on a card that does not.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

from fakegpu_lab.nvml import DRIVER_VERSION, discovery

if TYPE_CHECKING:
    from collections.abc import Callable

    from fakegpu_lab.nvml.view import Gpu, View

SUCCESS, UNINITIALIZED, INVALID_ARGUMENT, NOT_SUPPORTED, NOT_FOUND, INSUFFICIENT_SIZE = 0, 1, 2, 3, 6, 7
LIBRARY_NOT_FOUND = 12
_HANDLE = 0x10_0000
"""A handle is this and the card's place; nothing ever follows the pointer."""


class NvmlError(Exception):
    """An answer that is no success: ``args[0]`` is the code."""


def target(argument: Any) -> Any:
    """What a ``byref(…)`` or a pointer points to."""
    found = getattr(argument, "_obj", None)
    if found is not None:
        return found
    return argument.contents if hasattr(argument, "contents") else argument


def number(argument: Any) -> int:
    """A number, plain or of ctypes."""
    return int(getattr(argument, "value", argument))


def text(argument: Any) -> str:
    """A string, plain or of ctypes."""
    found = getattr(argument, "value", argument)
    return found.decode() if isinstance(found, bytes) else str(found)


def fill(argument: Any, **values: Any) -> None:
    """Set a structure's fields, those that this version of it has."""
    structure = target(argument)
    names = {entry[0] for entry in structure._fields_}
    for name, value in values.items():
        if name in names:
            setattr(structure, name, value)


def put(argument: Any, value: Any) -> None:
    """Store a number or a string."""
    where = target(argument)
    where.value = value.encode() if isinstance(value, str) else value


def point(argument: Any, place: int) -> None:
    """Store a card's handle."""
    value = ctypes.c_void_p(_HANDLE + place)
    ctypes.memmove(ctypes.addressof(target(argument)), ctypes.byref(value), ctypes.sizeof(value))


class Library:
    """Stands where nvidia-ml-py keeps its `ctypes.CDLL`.

    Parameters
    ----------
    pynvml
        The module: its error texts and its constants.
    """

    def __init__(self, pynvml: Any) -> None:
        self.pynvml = pynvml
        self._uses = 0
        self._functions: dict[str, Callable[..., int | bytes]] = {}

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("nvml"):
            raise AttributeError(name)
        from fakegpu_lab.nvml import answers

        functions = self.__dict__["_functions"]
        if name not in functions:
            functions[name] = self._made(name, answers.find(name))
        return functions[name]

    def _made(self, name: str, answer: Callable[..., Any] | None) -> Callable[..., int | bytes]:
        def function(*arguments: Any) -> int | bytes:
            if name.startswith("nvmlInit"):
                return self._init()
            if name == "nvmlShutdown":
                return self._shut_down()
            if name == "nvmlErrorString":
                return str(self.pynvml.NVMLError(number(arguments[0]))).encode()
            if not self._uses:
                return UNINITIALIZED
            if answer is None:
                return NOT_SUPPORTED
            try:
                answer(self, *arguments)
            except NvmlError as error:
                return int(error.args[0])
            return SUCCESS

        function.__name__ = name
        return function

    def _init(self) -> int:
        if not discovery.present():
            return LIBRARY_NOT_FOUND
        self._uses += 1
        return SUCCESS

    def _shut_down(self) -> int:
        if not self._uses:
            return UNINITIALIZED
        self._uses -= 1
        return SUCCESS

    @property
    def view(self) -> View:
        """The machine now."""
        found = discovery.current()
        if found is None:
            raise NvmlError(UNINITIALIZED)
        return found

    def gpu(self, handle: Any) -> Gpu:
        """The card of a handle."""
        place = (ctypes.cast(handle, ctypes.c_void_p).value or 0) - _HANDLE
        gpus = self.view.gpus
        if not 0 <= place < len(gpus):
            raise NvmlError(INVALID_ARGUMENT)
        return gpus[place]

    @property
    def driver(self) -> str:
        """The version of the driver."""
        return DRIVER_VERSION
