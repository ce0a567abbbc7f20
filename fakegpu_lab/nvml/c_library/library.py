"""The object that stands in for NVIDIA's library: it has every function of the C library, by name.

A function that the simulation has no answer for exists, too, and returns "Not Supported", as a driver does on a card
that lacks the feature.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fakegpu_lab.nvml import discovery
from fakegpu_lab.nvml.c_library import answers
from fakegpu_lab.nvml.c_library.arguments import (
    LIBRARY_NOT_FOUND,
    NOT_SUPPORTED,
    SUCCESS,
    UNINITIALIZED,
    NvmlError,
    number,
)

if TYPE_CHECKING:
    from collections.abc import Callable


class Library:
    """Takes the place of nvidia-ml-py's `ctypes.CDLL`.

    Parameters
    ----------
    pynvml
        The module, for its error texts.
    """

    def __init__(self, pynvml: Any) -> None:
        self.pynvml = pynvml
        self._init_count = 0
        self._functions: dict[str, Callable[..., int | bytes]] = {}

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("nvml"):
            raise AttributeError(name)
        functions = self.__dict__["_functions"]
        if name not in functions:
            functions[name] = self._function(name, answers.find(name))
        return functions[name]

    def _function(self, name: str, answer: Callable[..., Any] | None) -> Callable[..., int | bytes]:
        def function(*arguments: Any) -> int | bytes:
            if name.startswith("nvmlInit"):
                return self._init()
            if name == "nvmlShutdown":
                return self._shut_down()
            if name == "nvmlErrorString":
                return str(self.pynvml.NVMLError(number(arguments[0]))).encode()
            if not self._init_count:
                return UNINITIALIZED
            if answer is None:
                return NOT_SUPPORTED
            try:
                answer(*arguments)
            except NvmlError as error:
                return int(error.args[0])
            return SUCCESS

        function.__name__ = name
        return function

    def _init(self) -> int:
        if not discovery.present():
            return LIBRARY_NOT_FOUND
        self._init_count += 1
        return SUCCESS

    def _shut_down(self) -> int:
        if not self._init_count:
            return UNINITIALIZED
        self._init_count -= 1
        return SUCCESS
