"""What every kernel of a class keeps in memory: not what most cells have no use for."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest.importorskip("plotly")

CELLS = """
%load_ext fakegpu_lab
%fakegpu a100:2
import torch, fakegpu_lab as lab
from fakegpu_lab.course import pictures
model = torch.nn.Linear(4, 4).to("cuda")
optimizer = torch.optim.Adam(model.parameters())
with lab.record() as trace:
    model(torch.ones(2, 4).to("cuda")).sum().backward()
    optimizer.step()
trace.figure()
pictures.journey(trace)
"""
PROGRAM = f"""
import sys
from IPython.core.interactiveshell import InteractiveShell
InteractiveShell.instance().run_cell({CELLS!r}).raise_error()
import plotly.io
plotly.io.renderers.default  # what showing a figure looks at
assert "nbformat" in sys.modules, "with which plotly shows figures"
large = ("rfc3987_syntax", "lark", "pandas", "matplotlib")
print([name for name in large if sys.modules.get(name)])
import rfc3987_syntax
"""


@pytest.mark.long
def test_a_step_and_its_figures_import_nothing_large_that_they_do_not_need() -> None:
    """rfc3987_syntax, with lark, is 18 MiB in each kernel. An optimizer imports Dynamo, as without a simulated GPU."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert "[]\n" in done.stdout, done.stdout + done.stderr
    assert done.returncode == 0 or "No module named 'rfc3987_syntax'" in done.stderr, "it can be imported afterwards"
