"""``fakegpu-lab measure``: measures this machine's card, writes its profile and a page about it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fakegpu_lab.hardware.catalogue import lookup
from fakegpu_lab.hardware.errors import FakeGpuError
from fakegpu_lab.processes import inheritance

if TYPE_CHECKING:
    from fakegpu_lab.measure.figures import Figures

BEHAVIOR = ("environment", "allocation", "messages")
"""What is recorded beside the figures: sections of `measure.recording`."""


def run(output: str) -> None:
    """Measure the first card, and write the profile to `output`, the host's beside it, and the page.

    Raises
    ------
    FakeGpuError
        There is no card, or a file cannot be written there.
    """
    file = Path(output)
    if file.suffix.lower() not in (".yaml", ".yml"):
        raise FakeGpuError(f"{output} does not end in .yaml: a profile is a YAML file, such as my-gpu.yaml.")
    if not file.absolute().parent.is_dir():
        raise FakeGpuError(f"The profile {output} cannot be written: its folder does not exist.")
    from fakegpu_lab.measure import figures, page, profile_files, recording
    from fakegpu_lab.measure.fit import fit

    began = time.monotonic()
    figures.check()
    print("Measuring the first card. This takes a few minutes; nothing else should use it.", flush=True)
    measured = figures.measure(lambda line: print(f"  {line}", flush=True))
    fitted = fit(measured)
    files = {file: profile_files.card_file(fitted, measured)}
    host = file.with_name(f"{file.stem}-host{file.suffix}")
    host_text = profile_files.host_file(fitted, measured)
    if host_text is not None:
        files[host] = host_text
    for path, text in files.items():
        _write(path, text)
    lookup.gpu(str(file.absolute()))  # what was written can be read
    behavior = recording.record(BEHAVIOR, True, lambda name, seconds: print(f"  {name}: recorded", flush=True))
    print(f"Measuring the simulation of {fitted.nearest.id} in the same way.", flush=True)
    simulated, simulated_behavior = _simulation(fitted.nearest.id, measured)
    about = file.with_suffix(".md")
    _write(about, page.page(fitted, measured, simulated, behavior, simulated_behavior))
    argument = f', host="{host}"' if host_text is not None else ""
    print(f'{file} simulates this card: lab.enable("{file}"{argument})')
    print(f"{about} lays the simulation of {fitted.nearest.id} beside it ({time.monotonic() - began:.0f} s).")


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise FakeGpuError(f"{path} cannot be written: {error.strerror}.") from None


def _simulation(card: str, measured: Figures) -> tuple[Figures, dict[str, Any]]:
    """The figures of a simulated card, and what it does: kernels without values, copies and the rest with them."""
    sides = {name: product.amount for name, product in measured.products.items()}
    kernels = _simulated(card, "meta", sides, ("kernels",))
    rest = _simulated(card, "real", sides, ("first", "copies", *BEHAVIOR))
    from fakegpu_lab.measure.figures import Figures

    both = {**rest["figures"]}
    for name in ("products", "streaming", "cached", "shortest", "calls"):
        both[name] = kernels["figures"][name]
    return Figures(**both), rest["recording"]


def _simulated(card: str, compute: str, sides: dict[str, int], parts: tuple[str, ...]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "simulated.json"
        command = [sys.executable, "-m", "fakegpu_lab", "run", "--quiet", "-d", card, "--compute", compute]
        command += ["-m", "fakegpu_lab.measure", str(file), json.dumps(sides), *parts]
        # Where this process's card is a simulated one, the other must be another machine's.
        inherited = (inheritance.VARIABLE, inheritance.WORLD, inheritance.REPORTS)
        environment = {name: value for name, value in os.environ.items() if name not in inherited}
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
        if done.returncode:
            last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
            raise FakeGpuError(
                f"The profile is written, but not the page: measuring the simulation of {card} failed ({last})."
            )
        found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        return found
