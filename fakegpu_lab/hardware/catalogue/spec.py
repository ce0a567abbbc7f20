"""Parsing a machine's specification: "a100:2,t4", "dgx-h100 x2", "./my-gpu.yaml:4".

>>> [card.id for card in parse_spec("a100:2, t4").gpus]
['a100', 'a100', 't4']
>>> parse_spec("dgx-a100").node.name
'NVIDIA DGX A100'
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from fakegpu_lab.hardware.catalogue import lookup
from fakegpu_lab.hardware.catalogue.lookup import find, gpu, is_path
from fakegpu_lab.hardware.catalogue.profile import GpuProfile, HostProfile, NodeProfile
from fakegpu_lab.hardware.catalogue.sizes import format_size, parse_size
from fakegpu_lab.hardware.errors import FakeGpuError

MAX_DEVICES = 64
"""The most GPUs in a simulated machine, all nodes together.

PyTorch keeps a device's index in a signed byte (``c10::DeviceIndex``), so there could be at most 128; 64 is eight DGX
systems, and each GPU costs memory of the one process that simulates it.
"""

USUAL = "usual"
MEASURED = "measured"
_FIX = "write a name and a count, such as 'a100:2', 'a100:1,t4:2' or 'dgx-h100 x2'"
_AFTER = re.compile(r"(?P<name>.*\S)(?:\s*:\s*|\s+[x×*]\s*)(?P<count>[^:/\\\s]*)", re.IGNORECASE | re.DOTALL)
_QUOTED = re.compile(r"\s*([\"'])([^\"']*[^\"'\s][^\"']*)\1\s*")  # text in quotation marks
_BEFORE = re.compile(r"(?P<count>\d+)\s*[x×*]\s*(?P<name>\S.*)", re.IGNORECASE | re.DOTALL)


@dataclass(frozen=True)
class MachineSpec:
    """A machine to simulate.

    Attributes
    ----------
    text
        The specification as it was written.
    gpus
        A profile for each device, in the order of their indices; with several nodes, node by node.
    node
        The node's profile, if the specification names a node rather than single GPUs.
    nodes
        How many such nodes; 1 for single GPUs.
    chosen_host
        The host that was requested; None for the usual one.
    measured
        Whether the program's own code takes the time that it takes on this computer (``host="measured"``).
    """

    text: str
    gpus: tuple[GpuProfile, ...]
    node: NodeProfile | None = None
    nodes: int = 1
    chosen_host: HostProfile | None = None
    measured: bool = False

    @property
    def host(self) -> HostProfile:
        """The host: the one that was requested, the node's, or the one that the first card is usually sold with."""
        if self.chosen_host is not None:
            return self.chosen_host
        if self.node is not None and self.node.host.profile:
            return lookup.host(self.node.host.profile)
        return lookup.usual_host(self.gpus[0].segment, self.gpus[0].architecture)

    @property
    def gpus_per_node(self) -> int:
        """The devices of one node."""
        return len(self.gpus) // self.nodes


def parse_spec(text: str, memory: str | int | None = None, host: str | None = None) -> MachineSpec:
    """Read a machine's specification.

    Parameters
    ----------
    text
        GPUs separated by commas, each a name (as in `fakegpu_lab.hardware.catalogue.lookup`) or the path of a YAML
        file, with a count after it (``a100:2``, ``a100 x2``) or before it (``2x a100``); or one node, with
        the number of nodes in the same way.
    memory
        Limits every device to this size ("2GiB"), to run out of memory early.
    host
        The host, by its name or the path of a YAML file; None or ``"usual"`` for the usual one; ``"measured"``: that
        one, and the program's own code takes the time that it takes on this computer.

    Raises
    ------
    FakeGpuError
        If a name is unknown, a count is not from 1 to 64, or ``memory`` is not a size or more than the cards have.
    """
    spec = _parsed(text, memory)
    if host is None or host in (USUAL, MEASURED):
        return replace(spec, measured=host == MEASURED)
    return replace(spec, chosen_host=lookup.host(host))


def _parsed(text: str, memory: str | int | None) -> MachineSpec:
    if not isinstance(text, str) or not text.strip():
        raise FakeGpuError(f"There is no GPU in {text!r}: {_FIX}.")
    if quoted := _QUOTED.fullmatch(text):  # %fakegpu "dgx-h100 x2": IPython keeps the marks
        text = quoted[2]
    gpus: list[GpuProfile] = []
    parts = text.split(",")
    for part in parts:
        if not part.strip():
            raise FakeGpuError(f"{text!r} has a comma without a GPU next to it: {_FIX}.")
        name, count = _split(part)
        found = find(name)
        if isinstance(found, NodeProfile):
            if len(parts) > 1:
                raise FakeGpuError(
                    f"{text!r} mixes {found.id!r}, a whole machine, with other devices: "
                    f"ask for {found.id!r} alone, or for its GPUs by name."
                )
            return _limited(_of_node(text, found, count), memory)
        gpus += [found] * count
        _check_total(text, len(gpus))
    return _limited(MachineSpec(text.strip(), tuple(gpus)), memory)


def _split(part: str) -> tuple[str, int]:
    """Split a part of a specification into name and count."""
    part = part.strip().strip("\"'")
    match = (None if is_path(part) else _BEFORE.fullmatch(part)) or _AFTER.fullmatch(part)
    if match is None or (is_path(part) and not is_path(match["name"])):
        return part, 1  # the colon of C:\gpu.yaml belongs to the path
    count = match["count"]
    if not re.fullmatch(r"-?[0-9]{1,18}", count):
        raise FakeGpuError(f"The number of devices in {part!r} must be a whole number, not {count!r}: {_FIX}.")
    if int(count) < 1 or int(count) > MAX_DEVICES:
        raise FakeGpuError(
            f"{part!r} asks for {int(count):,} devices, and a simulated machine has 1 to {MAX_DEVICES}: "
            f"try '{match['name'].strip()}:{1 if int(count) < 1 else 8}'."
        )
    return match["name"].strip(), int(count)


def _check_total(text: str, devices: int) -> None:
    if devices > MAX_DEVICES:
        raise FakeGpuError(
            f"{text.strip()!r} has {devices:,} devices in all, and a simulated machine has at most "
            f"{MAX_DEVICES}: ask for fewer; what works on 8 works the same on more."
        )


def _of_node(text: str, node: NodeProfile, nodes: int) -> MachineSpec:
    _check_total(text, node.gpu_count * nodes)
    one = [profile for group in node.gpus for profile in [gpu(group.gpu)] * group.count]
    return MachineSpec(text.strip(), tuple(one * nodes), node, nodes)


def _limited(spec: MachineSpec, memory: str | int | None) -> MachineSpec:
    if memory is None:
        return spec
    limit = parse_size(memory)
    largest = max(spec.gpus, key=lambda card: card.total_memory_bytes)
    if limit > largest.total_memory_bytes:
        raise FakeGpuError(
            f"memory={memory!r} is more than the {format_size(largest.total_memory_bytes)} that "
            f"{largest.name} has: ask for less, or for a larger card, such as 'h200' or 'b200'."
        )
    gpus = tuple(card.with_memory(min(limit, card.total_memory_bytes)) for card in spec.gpus)
    return replace(spec, gpus=gpus)
