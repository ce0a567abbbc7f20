"""What a double click on a recording shows in JupyterLab."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output

import fakegpu_lab as lab
from fakegpu_lab.sidebar import recording

REAL = Path(__file__).parents[1] / "recording_views" / "real"


@pytest.fixture
def shell() -> InteractiveShell:
    return InteractiveShell.instance()


def shown(path: Path) -> list[dict[str, Any]]:
    """The data of what is displayed, in order."""
    with capture_output() as captured:
        recording.show(str(path))
    assert captured.stderr == ""
    return [output.data for output in captured.outputs]


@pytest.mark.usefixtures("shell")
def test_a_trace_is_shown_with_its_memory() -> None:
    first, *rest = shown(REAL / "resnet50_v100.json.gz")
    assert "130 ms recorded on Tesla V100-DGXS-32GB" in first["text/html"]
    texts = "".join(data.get("text/html", "") for data in rest)
    for table in ("Device time by kernel", "Device time by source line", "Peak of cuda:0: 2.60 GiB"):
        assert texts.count(f"<summary>{table}") == 1
    assert "resnet50_profiler_api.py" in texts
    assert sum("application/vnd.plotly.v1+json" in data or "plotly" in data.get("text/html", "") for data in rest) >= 2


@pytest.mark.usefixtures("shell")
def test_a_snapshot_is_shown(tmp_path: Path) -> None:
    lab.enable("a100:2")
    torch.cuda.memory._record_memory_history()
    kept = torch.ones(1 << 20, device="cuda:1")
    torch.cuda.memory._dump_snapshot(str(tmp_path / "snapshot.pickle"))
    lab.disable()
    texts = "".join(data.get("text/html", "") for data in shown(tmp_path / "snapshot.pickle"))
    assert "cuda:1 had reserved 20.0 MiB, of which tensors held 4.00 MiB" in texts
    assert "Memory of cuda:1 at the end, by source line" in texts
    del kept


@pytest.mark.usefixtures("shell")
def test_what_is_no_recording_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "<i>no<i>.json").write_text("{}")
    (tmp_path / "other.pickle").write_bytes(pickle.dumps(print))
    for name, said in (
        ("<i>no<i>.json", "&lt;i&gt;no&lt;i&gt;.json"),
        ("other.pickle", "is a pickle"),
        ("away", "away"),
    ):
        (one,) = shown(tmp_path / name)
        assert said in one["text/html"]
        assert "<i>" not in one["text/html"]
