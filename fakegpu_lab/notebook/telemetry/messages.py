"""The format of telemetry: messages about the machine's state, for the panel and JupyterLab's sidebar.

A message of kind ``"state"`` has the whole state; one of kind ``"update"`` has what is new since the message before:
rows to append, devices that changed, a newer timeline. The schema is ``telemetry.schema.json`` beside this file
(`schema`); `VERSION` grows when a field changes its meaning or is removed, not when one is added.
"""

from __future__ import annotations

import json
from importlib import resources
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from fakegpu_lab.hardware.memory_categories import NAMES
from fakegpu_lab.hardware.snapshot import DeviceSnapshot  # noqa: TC001 - pydantic reads the annotation

VERSION: Final = 1

COLUMNS: Final = ("now_ns", *NAMES, "reserved")
"""The columns of a device's history."""

Row = tuple[int, ...]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Lane(_Frozen):
    """A row of the timeline."""

    label: str
    bars: tuple[tuple[int, int, str, str], ...] = Field(description="start ns, end ns, kind, label")


class Timeline(_Frozen):
    """A part of the run, recorded: a step of training where there are steps, else the end of a cell."""

    number: int = Field(description="grows with each")
    title: str
    began_ns: int
    ended_ns: int
    free_ns: int = Field(description="when the first device was done with what was launched before")
    lanes: tuple[Lane, ...]
    top: tuple[tuple[int, str, int, int], ...] = Field(
        description="device, op, kernels, ns: those that took most; of the others together, device -1"
    )


Band = tuple[str, int, int, str, str, str, str, int, tuple[int, ...], tuple[tuple[int, int], ...]]


class DeviceAllocations(_Frozen):
    """The allocations of one device in the window of the timeline: every tensor a band over allocations and frees."""

    slot: int
    title: str = Field(description="of the window, such as Step 3")
    said: str = Field(description="how high the peak was, and when")
    peak: int = Field(description="the most bytes that tensors held")
    peak_step: int = Field(description="after which step; a step is one allocation or one free")
    steps: int
    columns: tuple[int, ...] = Field(description="the steps that are drawn")
    bands: tuple[Band, ...] = Field(
        description="from the bottom to the top: category, tensors, bytes of the largest, shape, op, module, phase, "
        "held for ns (-1: still held), places in `lines` of the stack, the user's first, and (place in `columns`, "
        "bytes more) wherever it grows or shrinks. What is known of one tensor is empty where a band has several"
    )
    lines: tuple[str, ...] = Field(description="lines of the user's program")
    phases: tuple[tuple[str, int, int], ...] = Field(description="name, first step, the step after the last one")
    modules: tuple[tuple[str, int, int], ...] = Field(description="the same of modules")
    groups: tuple[tuple[int, int, str, str, str, str], ...] = Field(
        description="what made the peak: bytes, tensors, category, shape, op, line; without category: the others"
    )


class CollectiveTotal(_Frozen):
    """All collectives of one operation and group, as recorded."""

    operation: str
    group: str
    ranks: tuple[int, ...]
    count: int
    nbytes: int
    ns: int = Field(description="from the start to the end, on the wire")
    bus_bandwidth: float = Field(description="bytes per second, as nccl-tests count it; the mean by time")
    waited_ns: dict[int, int] = Field(description="by device, how long it waited for the others")


class LastError(_Frozen):
    """What the last cell that failed failed with."""

    kind: str
    message: str
    device: int | None = Field(description="the ordinal, if the message names one")


class Advice(_Frozen):
    """Something that could be better."""

    rule: str
    text: str
    line: str


class Telemetry(_Frozen):
    """One message."""

    version: int = VERSION
    kind: Literal["state", "update"]
    seq: int = Field(description="counts the messages to one reader, from 1")
    epoch: int = Field(description="counts the machines: another one, and all that was known is gone")
    enabled: bool
    note: str = Field(description="why there is nothing to show and what to do; empty if there is")
    spec: str = Field(description="the text that the machine was made from, e.g. a100:2")
    compute: str
    real: bool = Field(default=False, description="real cards, which do not count kernels and copies; times are real")
    now_ns: int = Field(description="simulated time; of real cards, since they are watched")
    busy: bool = Field(description="whether a cell runs")
    columns: tuple[str, ...] = COLUMNS
    devices: tuple[DeviceSnapshot, ...] = Field(description="all; in an update those that changed")
    utilisation: dict[int, float] = Field(description="by slot: of the last stretch of time, the part a kernel ran")
    history: dict[int, tuple[Row, ...]] = Field(description="by slot, rows of `columns`; in an update the new ones")
    steps: tuple[tuple[int, int], ...] = Field(description="ns, number: optimizer steps; in an update the new ones")
    timeline: Timeline | None = Field(description="the last; in an update None if there is no newer one")
    allocations: tuple[DeviceAllocations, ...] | None = Field(
        description="of the last window, by device; in an update None if there are no newer ones"
    )
    collectives: tuple[CollectiveTotal, ...] | None = Field(description="None in an update: as before")
    error: LastError | None
    advice: tuple[Advice, ...] | None = Field(description="None in an update: as before")


class Control(_Frozen):
    """What a reader sends: on the comm ``fakegpu_lab.control``, which it opens itself, also while a cell runs."""

    version: int = VERSION
    reader: str = Field(description="the id of its telemetry comm")
    ack: int | None = Field(default=None, description="the seq of the last message that it has shown")
    do: Literal["pause", "resume", "state"] | None = Field(default=None, description="state: send everything again")


def schema() -> dict[str, Any]:
    """The JSON schema of both messages, as committed."""
    text = resources.files(__package__).joinpath("telemetry.schema.json").read_text(encoding="utf-8")
    found: dict[str, Any] = json.loads(text)
    return found


def make_schema() -> dict[str, Any]:
    """The same schema, generated from the models."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"fakegpu_lab telemetry, version {VERSION}",
        "telemetry": Telemetry.model_json_schema(mode="serialization"),
        "control": Control.model_json_schema(),
    }


if __name__ == "__main__":
    print(json.dumps(make_schema(), indent=1))
