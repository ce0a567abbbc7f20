"""What a double click on a recording shows in JupyterLab."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from IPython.display import HTML

import fakegpu_lab as lab
from fakegpu_lab.sidebar import recording

if TYPE_CHECKING:
    from collections.abc import Callable

REAL = Path(__file__).parents[1] / "recording_views" / "real"


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], list[Any]]:
    """What `recording.show` displays of a file, in order: texts of HTML, and other objects."""

    def show(path: Path) -> list[Any]:
        found: list[Any] = []
        monkeypatch.setattr(recording, "display", found.append)
        recording.show(str(path))
        return [one.data if isinstance(one, HTML) else one for one in found]

    return show


def test_a_trace_is_shown_with_its_memory(shown: Callable[[Path], list[Any]]) -> None:
    first, *rest = shown(REAL / "resnet50_v100.json.gz")
    assert "130 ms recorded on Tesla V100-DGXS-32GB" in first
    texts = "".join(one for one in rest if isinstance(one, str))
    for table in ("Device time by kernel", "Device time by source line", "Peak of cuda:0: 2.60 GiB"):
        assert texts.count(f"<summary>{table}") == 1
    assert "resnet50_profiler_api.py" in texts
    assert len([one for one in rest if hasattr(one, "to_plotly_json")]) == 2  # the timeline, the memory


def test_a_snapshot_is_shown(tmp_path: Path, shown: Callable[[Path], list[Any]]) -> None:
    lab.enable("a100:2")
    torch.cuda.memory._record_memory_history()
    kept = torch.ones(1 << 20, device="cuda:1")
    torch.cuda.memory._dump_snapshot(str(tmp_path / "snapshot.pickle"))
    del kept
    lab.disable()
    texts = "".join(one for one in shown(tmp_path / "snapshot.pickle") if isinstance(one, str))
    assert "cuda:1 had reserved 20.0 MiB, of which tensors held 4.00 MiB" in texts
    assert "Memory of cuda:1 at the end, by source line" in texts


def test_what_is_no_recording_is_one_sentence(tmp_path: Path, shown: Callable[[Path], list[Any]]) -> None:
    (tmp_path / "<i>no<i>.json").write_text("{}")
    (tmp_path / "other.pickle").write_bytes(pickle.dumps(print))
    expected = {"<i>no<i>.json": "&lt;i&gt;no&lt;i&gt;.json", "other.pickle": "is a pickle", "away": "away"}
    for name, said in expected.items():
        (one,) = shown(tmp_path / name)
        assert said in one
        assert "<i>" not in one
