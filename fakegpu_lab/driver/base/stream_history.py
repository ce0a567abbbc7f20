"""Which stream was current when a node of the autograd graph was made.

On CUDA each node stores the stream of its forward (torch/csrc/autograd/input_metadata.cpp). C++ cannot ask Python for
it here, so this module notes, at every change of the current stream, autograd's counter of nodes: a node's number then
gives its stream. A program that never changes the stream pays nothing.

Simplified: the numbers count each thread's nodes, and the thread that runs backward stands for the one that ran
forward.
"""

from __future__ import annotations

import weakref
from bisect import bisect_right
from typing import TYPE_CHECKING, Any

import torch

from fakegpu_lab.hardware.time.clock import here

if TYPE_CHECKING:
    from fakegpu_lab.hardware.device import Device
    from fakegpu_lab.hardware.time.clock import Host, Stream

MOST = 10_000
"""Changes of the stream that are kept at least, for graphs that live long."""

_next_number: Any = torch._C._autograd._get_sequence_nr
_of_thread: weakref.WeakKeyDictionary[Host, dict[Device, History]] = weakref.WeakKeyDictionary()


class History:
    """The current streams of one thread on one device: `streams[i]` from the node with number `first[i]` on."""

    __slots__ = ("first", "streams")

    def __init__(self, stream: Stream) -> None:
        self.first = [0]
        self.streams = [stream]

    def add(self, stream: Stream) -> None:
        """Note that `stream` is current from now on."""
        number = _next_number()
        if self.first[-1] == number:  # no node was made on the last one
            self.first.pop()
            self.streams.pop()
        if not self.streams or self.streams[-1] is not stream:
            self.first.append(number)
            self.streams.append(stream)
        if len(self.first) > 2 * MOST:
            del self.first[:MOST], self.streams[:MOST]

    def at(self, number: int) -> Stream:
        """The stream that was current when the node with that number was made."""
        return self.streams[max(bisect_right(self.first, number) - 1, 0)]


def forget() -> None:
    """Forget all threads' histories: their streams belong to an earlier machine."""
    _of_thread.clear()


def make_current(device: Device, stream: Stream) -> None:
    """Make `stream` the calling thread's current stream on its device."""
    host = here.host
    histories = _of_thread.setdefault(host, {})
    if device not in histories:
        histories[device] = History(host.streams[device])
    histories[device].add(stream)
    host.streams[device] = stream


def several() -> dict[Device, History] | None:
    """The calling thread's histories, if the graphs that it made may have nodes on other than its current streams."""
    host = here.host
    histories = _of_thread.get(host)
    if histories is None:
        return None
    for device, history in histories.items():
        if len(history.streams) > 1 or history.streams[0] is not host.streams[device]:
            return histories
    return None
