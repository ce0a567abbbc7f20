"""The records of a recording as lists of plain data, and back: one row a record, its fields in their order."""

from __future__ import annotations

import dataclasses
from functools import cache
from typing import Any

from fakegpu_lab.course.expect.plain_data.conversion import RECORDS
from fakegpu_lab.hardware.time.access import Access, LaunchTime, LineAccess, Occupancy
from fakegpu_lab.hardware.time.happens_before import Race
from fakegpu_lab.hardware.time.records import Allocation, Collective, HostWork, Kernel, Transfer, Wait
from fakegpu_lab.kernels.races import KernelRace

_KINDS: dict[str, type] = dict(
    zip(RECORDS, (Kernel, Transfer, Collective, Allocation, Wait, HostWork, Race), strict=True)
)


def rows(name: str, records: list[Any]) -> list[list[Any]]:
    """Records of the kind `name` (`RECORDS`) as rows."""
    return [_row(record, KernelRace if type(record) is KernelRace else _KINDS[name]) for record in records]


def records(name: str, rows: list[list[Any]]) -> list[Any]:
    """The records that `rows` wrote.

    Raises
    ------
    TypeError, ValueError, KeyError
        They are something else.
    """
    kind = _KINDS[name]
    if kind is Kernel:
        return [_kernel(row) for row in rows]
    if kind is Race:
        return [(KernelRace if len(row) == len(_fields(KernelRace)) else Race)(*map(_frozen, row)) for row in rows]
    return [kind(*map(_frozen, row)) for row in rows]


@cache
def _fields(kind: type) -> list[str]:
    return [field.name for field in dataclasses.fields(kind)]


_ACCESS = _fields(Kernel).index("access")


def _values(record: Any, kind: type) -> list[Any]:
    return [getattr(record, field) for field in _fields(kind)]


def _row(record: Any, kind: type) -> list[Any]:
    values = _values(record, kind)
    if kind is Kernel:
        values[_ACCESS] = _access_row(record.access)
    return values


def _kernel(row: list[Any]) -> Kernel:
    values = list(row)
    access = _access(values.pop(_ACCESS))
    frozen = list(map(_frozen, values))
    return Kernel(*frozen[:_ACCESS], access, *frozen[_ACCESS:])  # type: ignore[call-arg]


def _access_row(access: Access | None) -> list[Any] | None:
    """What a kernel did to the card."""
    if access is None:
        return None
    plain: dict[str, Any] = dict(zip(_fields(Access), _values(access, Access), strict=True))
    plain["lines"] = [_values(line, LineAccess) for line in access.lines]
    plain["flops_by_format"] = [[*key, flops] for key, flops in (access.flops_by_format or {}).items()]
    for name, kind in (("occupancy", Occupancy), ("time", LaunchTime)):
        part = getattr(access, name)
        plain[name] = part and _values(part, kind)
    return list(plain.values())


def _access(row: list[Any] | None) -> Access | None:
    if row is None:
        return None
    plain = dict(zip(_fields(Access), row, strict=True))
    plain["lines"] = tuple(LineAccess(*map(_frozen, line)) for line in plain["lines"])
    plain["flops_by_format"] = {(str(fmt), bool(cores)): float(flops) for fmt, cores, flops in plain["flops_by_format"]}
    plain["grid"] = _frozen(plain["grid"])
    for name, kind in (("occupancy", Occupancy), ("time", LaunchTime)):
        plain[name] = plain[name] and kind(*plain[name])
    return Access(**plain)


def _frozen(field: Any) -> Any:
    return tuple(map(_frozen, field)) if isinstance(field, list) else field
