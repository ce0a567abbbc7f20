"""``fakegpu-lab measure``: a simulated card's profile is found again from its times, as a real one's would be."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
import torch
import yaml

import fakegpu_lab as lab
from fakegpu_lab.hardware.catalogue.lookup import gpu, host, usual_host
from fakegpu_lab.measure import figures as measured
from fakegpu_lab.measure import page, profile_files
from fakegpu_lab.measure.figures import Figures, Timed
from fakegpu_lab.measure.fit import fit, nearest, pcie_rate

if TYPE_CHECKING:
    from pathlib import Path

    from fakegpu_lab.hardware.catalogue.profile import GpuProfile

WITHIN = 0.03
ODD = """
based_on: a100
name: A card that nobody sells
memory: 48 GiB
total_memory: 47.4 GiB
memory_bandwidth: 1450 GB/s
memory_clock_mhz: 1133
l2: 24 MiB
context: 300 MiB
sm_count: 84
core_clock_mhz: 1500
power_limit_w: 350
peak_flops:
  {fp64: 8 TFLOP/s, fp64_tensor: 16 TFLOP/s, fp32: 16 TFLOP/s, tf32: 120 TFLOP/s, fp16: 250 TFLOP/s,
  bf16: 240 TFLOP/s, int8: 470 TOP/s}
pcie: {generation: 3, lanes: 8}
nvlink: {generation: 3, links: 12, bandwidth: 400 GB/s}
"""
"""A card that is in no catalogue: what is found of it is measured."""


def run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *command], capture_output=True, text=True, timeout=600, check=False)


def simulated(spec: str, compute: str, folder: Path, *parts: str) -> dict[str, Any]:
    file = folder / f"{compute}.json"
    sides = dict.fromkeys(measured.PRODUCTS, 8192)
    command = ["-m", "fakegpu_lab", "run", "-q", "-d", spec, "--compute", compute]
    done = run(*command, "-m", "fakegpu_lab.measure", str(file), json.dumps(sides), *parts)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(file.read_text())["figures"]
    return found


def measure(spec: str, folder: Path) -> Figures:
    """Kernels without values, which needs no arithmetic of 8192³; copies to the host need values."""
    kernels = simulated(spec, "meta", folder, "kernels")
    rest = simulated(spec, "real", folder, "first", "copies")
    both = {**rest, **{name: kernels[name] for name in ("products", "streaming", "cached", "shortest", "calls")}}
    return Figures(**both)


def figures_of(card: GpuProfile) -> dict[str, float]:
    """All figures of a profile that are numbers."""
    names = (
        "memory_bytes", "total_memory_bytes", "memory_bandwidth", "memory_bus_bits", "memory_clock_mhz", "memory_pumps",
        "l2_bytes", "context_bytes", "sm_count", "core_clock_mhz", "power_limit_w", "shared_mem_per_sm",
        "shared_mem_per_block", "shared_mem_per_block_optin", "regs_per_sm", "max_threads_per_sm", "max_blocks_per_sm",
        "warp_size", "pci_device_id",
    )  # fmt: skip
    found = {name: float(getattr(card, name)) for name in names}
    found |= {f"peak {name}": value for name, value in card.peak_flops.given().items()}
    found["pcie"] = pcie_rate(card.pcie.generation, card.pcie.lanes)
    if card.nvlink is not None:
        found["nvlink"] = float(card.nvlink.bandwidth)
    return found


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.usefixtures("usual_hosts")
@pytest.mark.parametrize("name", ["odd", "a100", "t4", "rtx4090"])
def test_a_cards_own_profile_is_found_again(name: str, tmp_path: Path) -> None:
    spec = name
    if name == "odd":
        path = tmp_path / "odd.yaml"
        path.write_text(ODD)
        spec = str(path)
    card = gpu(spec)
    found = measure(f"{spec}:2", tmp_path)
    fitted = fit(found)
    (tmp_path / "my-gpu.yaml").write_text(profile_files.card_file(fitted, found))
    (tmp_path / "my-host.yaml").write_text(profile_files.host_file(fitted, found) or "")
    again = gpu(str(tmp_path / "my-gpu.yaml"))
    expected, got = figures_of(card), figures_of(again)
    assert got.keys() == expected.keys()
    wrong = {key: (got[key], expected[key]) for key in expected if got[key] != pytest.approx(expected[key], rel=WITHIN)}
    assert wrong == {}
    assert (again.name, again.compute_capability, again.ecc) == (card.name, card.compute_capability, card.ecc)
    assert again.dtypes == card.dtypes
    its_host = host(str(tmp_path / "my-host.yaml"))
    usual = usual_host(card.segment, card.architecture)
    assert (its_host.factor, its_host.launch_us) == pytest.approx((usual.factor, usual.launch_us), rel=WITHIN)
    machine = lab.enable(str(tmp_path / "my-gpu.yaml"), host=str(tmp_path / "my-host.yaml"))
    try:
        assert torch.cuda.get_device_name() == card.name
        assert machine.host.factor == its_host.factor
    finally:
        lab.disable()


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.usefixtures("usual_hosts")
def test_the_command_writes_profiles_and_a_page(tmp_path: Path) -> None:
    output = tmp_path / "my-t4.yaml"
    command = ["-m", "fakegpu_lab", "run", "-q", "-d", "t4", "--compute", "meta", "-m", "fakegpu_lab", "measure"]
    done = run(*command, "-o", str(output))
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert "memory: 282 GB/s read and written by a kernel that streams" in done.stdout
    assert f'lab.enable("{output}", host="{tmp_path / "my-t4-host.yaml"}")' in done.stdout
    fields = yaml.safe_load(output.read_text())
    assert fields["based_on"] == "t4"
    assert fields["status"] == "measured"
    assert "driver" in fields["source"][0]
    assert fields["estimated"] == ["peak_flops.fp32", "peak_flops.fp16", "peak_flops.int8"]
    text = (tmp_path / "my-t4.md").read_text()
    assert "| memory bandwidth | 320 GB/s | 320 GB/s | 0.0% |" in text
    assert "| memory, streamed | 282 GB/s | 282 GB/s | 0.0% |" in text
    assert "| allocation |" in text
    assert "fp8 was not measured" in text


def described(**changes: Any) -> Figures:
    properties = {
        "major": 8, "minor": 0, "multi_processor_count": 108, "total_memory": 85_094_039_552, "clock_rate": 1_410_000,
        "memory_clock_rate": 1_593_000, "memory_bus_width": 5120, "L2_cache_size": 41_943_040,
    }  # fmt: skip
    known = {"name": "NVIDIA A100-SXM4-80GB", "date": "2026-01-31", "torch": "2.10", "cuda": "13.0"}
    return Figures(**{**known, "system": "Linux", "cpu": "", "properties": properties, **changes})


def test_the_nearest_known_card_has_its_name_or_its_capability() -> None:
    assert nearest(described()).id == "a100"
    assert nearest(described(name="NVIDIA A100-SXM4-40GB")).id == "a100-40gb"
    assert nearest(described(name="A card that nobody sells")).compute_capability == (8, 0)


def test_what_was_not_measured_is_the_nearest_cards_and_says_so() -> None:
    fitted = fit(described())
    assert fitted.card.memory_bandwidth == gpu("a100").memory_bandwidth
    assert fitted.host is None
    assert {"memory_bandwidth", "context", "pcie", "nvlink", "peak_flops.fp16"} <= fitted.estimated.keys()
    text = profile_files.card_file(fitted, described())
    assert "# memory_bandwidth is estimated (not measured: the nearest known card's)." in text


def test_a_product_that_the_power_limit_bounds_says_nothing_about_the_peak() -> None:
    """A T4 does 25.5 of 65 TFLOP/s in half precision, and would with any peak above that."""
    t4 = {"major": 7, "minor": 5, "multi_processor_count": 40, "total_memory": 15_634_661_376, "clock_rate": 1_590_000}
    product = Timed(amount=8192, seconds=2 * 8192**3 / 25.5e12)
    fitted = fit(described(name="Tesla T4", properties=t4, products={"fp16": product}))
    assert fitted.card.peak("fp16") == pytest.approx(65.13e12)
    assert "power limit" in fitted.estimated["peak_flops.fp16"]
    slower = Timed(amount=8192, seconds=2 * 8192**3 / 15e12)
    fitted = fit(described(name="Tesla T4", properties=t4, products={"fp16": slower}))
    assert fitted.card.peak("fp16") < 35e12
    assert "peak_flops.fp16" not in fitted.estimated


def test_differences_are_in_percent() -> None:
    fitted = fit(described(streaming=Timed(amount=2**29, seconds=2**29 / 1.2e12)))
    ours, theirs = described(shortest=3e-6), described(shortest=2e-6)
    empty: dict[str, Any] = {"sections": {"messages": {"add": "no error"}}}
    other: dict[str, Any] = {"sections": {"messages": {"add": "RuntimeError: no"}}}
    text = page.page(fitted, ours, theirs, empty, other)
    assert "| the shortest kernel | 3.00 µs | 2.00 µs | +50.0% |" in text
    assert "- `messages/add`: here `no error`, in the simulation `RuntimeError: no`" in text


def test_without_a_card_it_is_one_sentence(tmp_path: Path) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a card")
    done = run("-m", "fakegpu_lab", "measure", "-o", str(tmp_path / "x.yaml"))
    assert done.returncode != 0
    assert "torch sees no CUDA card here, so there is nothing to measure" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "x.yaml").exists()


def test_a_file_that_is_no_profile_is_refused_before_measuring() -> None:
    for name, why in (("my-gpu.txt", "does not end in .yaml"), ("missing/my-gpu.yaml", "its folder does not exist")):
        done = run("-m", "fakegpu_lab", "measure", "-o", name)
        assert done.returncode != 0
        assert why in done.stderr
        assert "Traceback" not in done.stderr
