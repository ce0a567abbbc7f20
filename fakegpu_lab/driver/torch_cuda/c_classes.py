"""Classes that stand in for C classes of torch's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable


class StandIn(type):
    """The class of a stand-in: calling it calls `make`, and all objects of the C class are its instances."""

    _original: type
    make: Callable[..., Any]

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        """Make an object: by `make` only if it is the stand-in itself, not a subclass, that is called."""
        return cls.make(*args, **kwargs) if "make" in vars(cls) else super().__call__(*args, **kwargs)

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, cls._original) if "make" in vars(cls) else super().__instancecheck__(instance)

    def __subclasscheck__(cls, subclass: type) -> bool:
        return issubclass(subclass, cls._original) if "make" in vars(cls) else super().__subclasscheck__(subclass)


def stand_in(original: type) -> Any:
    """A class that stands in for `original`, and can be a base of other classes; its `make` is set later."""
    meta = type(f"{original.__name__}Type", (StandIn, type(original)), {})
    # `__module__`: pickle names it as programs do
    names = {"__module__": "torch", "__doc__": original.__doc__, "_original": original}
    return meta(original.__name__, (original,), names)


if TYPE_CHECKING:
    STREAM = torch._C.Stream
    EVENT = torch._C.Event
    GENERATOR = torch._C.Generator
else:
    STREAM, EVENT, GENERATOR = map(stand_in, (torch._C.Stream, torch._C.Event, torch._C.Generator))
