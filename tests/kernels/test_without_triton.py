"""What holds where Triton is not installed, too."""

from __future__ import annotations

import subprocess
import sys
from importlib import metadata, util
from types import SimpleNamespace

import pytest

from fakegpu_lab.driver.compile.triton_version import too_old
from fakegpu_lab.hardware.errors import FakeGpuError
from fakegpu_lab.kernels.triton_programs import install


def test_enabling_a_machine_does_not_import_triton():
    program = "import fakegpu_lab as lab, sys; lab.enable('t4'); print('triton' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=120)
    assert ran.stdout == "False\n"


@pytest.mark.parametrize(
    ("version", "old"), [("3.8.1", True), ("3.9.0", False), ("3.10.0+git1", False), ("4.0", False)]
)
def test_a_triton_is_too_old(version, old):
    assert too_old(version) is old


REMEDY = "Run: pip install 'triton>=3.9', then restart the kernel."
SENTENCE = f"Triton 3.6.0 is too old: simulated GPUs need 3.9 or newer. {REMEDY}"


def test_with_a_triton_that_is_too_old_a_launch_says_what_to_install():
    (of_triton,) = (one for one in install.CHANGES if one.path == "triton")
    rows = {row.name: row.by for row in of_triton.by(SimpleNamespace(__version__="3.6.0"))}
    assert rows.keys() == {"_default", "_active"}
    with pytest.raises(FakeGpuError) as raised:
        rows["_active"].get_current_device()
    assert str(raised.value) == SENTENCE
    assert not hasattr(rows["_active"], "_obj"), "what torch looks for before it compiles"


KERNEL = """
import fakegpu_lab as lab
import torch
import triton
from torch.utils._triton import has_triton

@triton.jit
def nothing(x):
    pass

lab.enable("a100")
has_triton()
try:
    nothing[(1,)](torch.ones(1, device="cuda"))
except lab.FakeGpuError as error:
    print(error)
"""


@pytest.mark.skipif(
    util.find_spec("triton") is None or not too_old(metadata.version("triton")), reason="Triton is new enough"
)
def test_a_kernel_of_a_triton_that_is_too_old(tmp_path):
    (tmp_path / "kernel.py").write_text(KERNEL)
    ran = subprocess.run([sys.executable, "kernel.py"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert (ran.stdout, ran.stderr) == (SENTENCE.replace("3.6.0", metadata.version("triton")) + "\n", "")
