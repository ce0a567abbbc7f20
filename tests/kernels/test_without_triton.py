"""What holds where Triton is not installed, too."""

from __future__ import annotations

import subprocess
import sys

import pytest

from fakegpu_lab.kernels.triton_programs.install import too_old


def test_enabling_a_machine_does_not_import_triton():
    program = "import fakegpu_lab as lab, sys; lab.enable('t4'); print('triton' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=120)
    assert ran.stdout == "False\n"


@pytest.mark.parametrize(
    ("version", "old"), [("3.8.1", True), ("3.9.0", False), ("3.10.0+git1", False), ("4.0", False)]
)
def test_a_triton_that_is_too_old_is_left_alone(version, old):
    assert too_old(version) is old
