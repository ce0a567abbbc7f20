"""Expectations of devices: where tensors and gradients are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fakegpu_lab.course.expect.describe import listed, tensors, value
from fakegpu_lab.course.expect.expectation import expectation
from fakegpu_lab.course.expect.outcome import report, subject
from fakegpu_lab.course.expect.plain_data.conversion import SeenGroup, SeenTensor, places

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from fakegpu_lab.course.expect.outcome import Said


@expectation(thing=places)
def on_device(thing: Any, device: str, **said: Unpack[Said]) -> bool:
    """Expect a tensor to be on a device; for a module, an optimizer, a list or a dict, all tensors that it holds.

    Parameters
    ----------
    device
        ``"cuda:1"``, ``"cpu"``, or ``"cuda"`` for any GPU.
    """
    found = list(tensors(thing))
    others = [(name, tensor) for name, tensor in found if not _is_on(tensor.device, device)]
    name = subject("it")
    single = isinstance(thing, SeenTensor)
    what = f"{name} is on {_place(device)}" if single else f"all of {name} is on {_place(device)}"
    if not found:
        where = f"{value(thing)}, which holds no tensor"
    elif single:
        where = f"on {thing.device}"
    else:
        places = sorted({tensor.device for _, tensor in others})
        where = f"{len(others)} of {len(found)} tensors are on {' and '.join(places)}: {listed([n for n, _ in others])}"
    return report(said, met=bool(found) and not others, what=what, found=where, hint=_hint(thing, device))


@expectation(module=places)
def grad_on_device(module: Any, device: str, **said: Unpack[Said]) -> bool:
    """Expect that every parameter of a module has a gradient on a device."""
    parameters = [(name, tensor) for name, tensor in tensors(module) if tensor.requires_grad]
    missing = [name for name, tensor in parameters if not tensor.grad]
    others = [name for name, tensor in parameters if tensor.grad and not _is_on(tensor.grad, device)]
    where = f"none for {listed(missing)}" if missing else f"elsewhere: {listed(others)}"
    what = f"every parameter of {subject('the model')} has a gradient on {_place(device)}"
    hint = "Gradients come from loss.backward(); optimizer.zero_grad() takes them away." if missing else ""
    return report(said, met=bool(parameters) and not missing and not others, what=what, found=where, hint=hint)


@expectation(things=places)
def same_device(*things: Any, **said: Unpack[Said]) -> bool:
    """Expect that all tensors of several values are on the same device."""
    places = [sorted({tensor.device for _, tensor in tensors(thing)}) for thing in things]
    names = [subject(f"value {place + 1}", place) for place in range(len(things))]
    where = ", ".join(f"{name}: {' and '.join(at) or 'no tensor'}" for name, at in zip(names, places, strict=True))
    met = len({at for found in places for at in found}) == 1 and all(places)
    return report(said, met=met, what=f"{' and '.join(names)} are on the same device", found=where)


def _is_on(found: str, device: str) -> bool:
    return found.partition(":")[0] == "cuda" if device == "cuda" else found == device


def _place(device: str) -> str:
    return "a GPU" if device == "cuda" else device


def _hint(thing: Any, device: str) -> str:
    call = ".cpu()" if device == "cpu" else f'.to("{device}")'
    if isinstance(thing, SeenGroup) and thing.kind == "module":
        return f"A module is moved in place: `model{call}` is enough."
    if isinstance(thing, SeenTensor):
        return f"`{call}` returns a copy on {_place(device)} and leaves the tensor where it was: give the copy a name."
    return ""
