"""Two recordings side by side: one of a real card and one of the simulation; see `recording`.

Figures are compared by relative error, texts for equality; what cannot agree (dates, drivers, host) is not judged.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

NOT_JUDGED = (
    "environment/nvidia_smi", "environment/driver", "environment/python", "environment/system", "environment/torch",
    "environment/cuda", "environment/cudnn", "environment/nccl", "environment/arch_list",
    "environment/properties/uuid", "environment/properties/pci_", "environment/context/free",
    "environment/device_count", "allocation/out_of_memory/texts", "messages/asserts/*/kernel_line",
    "times/*/calls", "times/shapes", "times/profiled/*/kernels", "numbers/*/readable",
)  # fmt: skip
"""Beginnings of paths (``*`` stands for one part) that depend on the host, the build, or chance."""


@dataclass(frozen=True)
class Difference:
    """One figure or text of both recordings.

    Attributes
    ----------
    error
        ``|simulated − real| / |real|`` for figures (infinite where the real one is 0), 0 or infinite for texts.
    """

    path: str
    real: Any
    simulated: Any
    error: float

    @property
    def section(self) -> str:
        """The section that it belongs to."""
        return self.path.partition("/")[0]


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """All figures and texts, by path."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from leaves(inner, f"{path}/{key}" if path else key)
    elif isinstance(value, list) and value and isinstance(value[0], (dict, list)):
        for place, inner in enumerate(value):
            yield from leaves(inner, f"{path}/{place}")
    else:
        yield path, value


def judged(path: str) -> bool:
    """Whether the two recordings ought to agree there."""
    parts = path.split("/")
    for pattern in NOT_JUDGED:
        wanted = pattern.split("/")
        if len(parts) >= len(wanted) and all(
            w == "*" or p == w or (place == len(wanted) - 1 and p.startswith(w))
            for place, (w, p) in enumerate(zip(wanted, parts, strict=False))
        ):
            return False
    return True


def error_between(real: Any, simulated: Any) -> float:
    """The relative error of two figures; 0 or infinity for anything else."""
    figures = all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in (real, simulated))
    if real == simulated:
        return 0.0
    if not figures or real == 0:
        return float("inf")
    return float(abs(simulated - real) / abs(real))


def no_time(path: str, simulated: Any) -> bool:
    """Whether the simulation says nothing about a time."""
    return path.startswith("times/") and path.endswith("/seconds") and not simulated


def compare(real: dict[str, Any], simulated: dict[str, Any]) -> tuple[list[Difference], dict[str, list[str]]]:
    """Both recordings, figure by figure, and the paths that could not be compared, by the reason."""
    there, here = dict(leaves(real["sections"])), dict(leaves(simulated["sections"]))
    found: list[Difference] = []
    left_out: dict[str, list[str]] = {"only real": [], "only simulated": [], "no time yet": [], "not judged": []}
    for path, value in there.items():
        if not judged(path):
            left_out["not judged"].append(path)
        elif path not in here:
            left_out["only real"].append(path)
        elif no_time(path, here[path]):
            left_out["no time yet"].append(path)
        else:
            found.append(Difference(path, value, here[path], error_between(value, here[path])))
    left_out["only simulated"] = [path for path in here if path not in there and judged(path)]
    return found, left_out


def summary(found: list[Difference], left_out: dict[str, list[str]]) -> list[dict[str, Any]]:
    """One row a section."""
    rows = []
    sections = {d.section for d in found} | {p.partition("/")[0] for paths in left_out.values() for p in paths}
    for section in sorted(sections):
        errors = [d.error for d in found if d.section == section]
        finite = [e for e in errors if e != float("inf")]
        rows.append(
            {
                "section": section,
                "compared": len(errors),
                "equal": sum(e == 0 for e in errors),
                "within 1%": sum(e <= 0.01 for e in errors),
                "within 10%": sum(e <= 0.1 for e in errors),
                "median error": statistics.median(finite) if finite else None,
                "worst error": max(finite) if finite else None,
                "different": len(errors) - len(finite),
                **{reason: sum(p.partition("/")[0] == section for p in paths) for reason, paths in left_out.items()},
            }
        )
    return rows
