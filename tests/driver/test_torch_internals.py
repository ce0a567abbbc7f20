"""What goes round the simulation in torch takes another way, with the same results and without noise."""

from __future__ import annotations

import copy
import os
import subprocess
import sys
import traceback
import warnings
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile

import fakegpu_lab as lab
from fakegpu_lab.user_code import frames


@pytest.mark.usefixtures("machine")
def test_the_profiler_does_not_look_for_cuda_events(capfd: pytest.CaptureFixture[str]) -> None:
    x = torch.ones(2, 2, device="cuda")
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as recorded:
        x @ x
    assert "aten::mm" in recorded.key_averages().table()
    assert capfd.readouterr().err == ""


@pytest.mark.usefixtures("machine")
def test_masked_transformers_in_eval_mode() -> None:
    torch.manual_seed(0)
    host = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 1).eval()
    device = copy.deepcopy(host).cuda()
    x, mask = torch.randn(2, 3, 8), torch.tensor([[False, False, True], [False] * 3])
    with torch.no_grad():
        out = device(x.cuda(), src_key_padding_mask=mask.cuda()).cpu()
        expected = host(x, src_key_padding_mask=mask)
    torch.testing.assert_close(out[~mask], expected[~mask])


@pytest.mark.skipif(torch.version.cuda is not None, reason="a CUDA build answers for itself")
def test_without_a_machine_torch_says_what_it_always_said() -> None:
    lab.enable("a100")
    torch.ones(1, device="cuda")
    lab.disable()
    with pytest.raises(AssertionError, match="Torch not compiled with CUDA enabled"):
        torch.ones(1, device="cuda")
    lab.enable("t4")
    assert torch.ones(1, device="cuda").is_cuda
    lab.disable()


@pytest.mark.usefixtures("machine")
def test_transformers_on_the_host_keep_their_fast_path() -> None:
    host = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 1).eval()
    x, mask = torch.randn(2, 3, 8), torch.tensor([[False, False, True], [False] * 3])
    assert torch.backends.mha.get_fastpath_enabled()
    with torch.no_grad(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The PyTorch API of nested tensors")
        assert host(x, src_key_padding_mask=mask)[0, 2].abs().max() == 0  # the fast path pads with zeros


@pytest.mark.usefixtures("machine")
@pytest.mark.filterwarnings("ignore:.*torch.jit")
def test_transformers_are_scripted() -> None:
    model = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).cuda().eval()
    x = torch.randn(2, 3, 8, device="cuda")
    with torch.no_grad():
        torch.testing.assert_close(torch.jit.script(model)(x), model(x))


@pytest.mark.usefixtures("machine")
def test_ranges_for_nvidias_profilers() -> None:
    with torch.autograd.profiler.emit_nvtx() as ranges:
        x = torch.ones(2, device="cuda", requires_grad=True)
        x.sum().backward()
    with pytest.raises(RuntimeError, match="not reentrant"):
        ranges.__enter__()
    with torch.autograd.profiler.emit_nvtx(enabled=False) as nothing:
        assert nothing is None


@pytest.mark.skipif(torch.version.cuda is not None, reason="a CUDA build pins memory")
def test_without_a_machine_nothing_is_pinned() -> None:
    lab.enable("a100")
    torch.ones(2).pin_memory()
    lab.disable()
    with pytest.raises(RuntimeError, match=r"^Cannot access accelerator device when none is available"):
        torch.ones(2).pin_memory()


_OVERCOMMIT = Path("/proc/sys/vm/overcommit_memory")


@pytest.mark.skipif(
    not _OVERCOMMIT.exists() or _OVERCOMMIT.read_text().strip() == "1", reason="this system promises memory it lacks"
)
def test_host_memory_is_named_when_it_is_what_lacks() -> None:
    beyond = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") * 2
    lab.enable("b200:1")
    try:
        if torch.cuda.mem_get_info()[0] < beyond:
            pytest.skip("this computer has more memory than the largest card")
        with pytest.raises(RuntimeError, match="this computer does not"):
            torch.empty(beyond, dtype=torch.uint8, device="cuda")
    finally:
        lab.disable()


@pytest.mark.parametrize("line", ["torch.ones(3).cuda().view(2)", "torch.ones(1).expand(2**35).cuda()"])
def test_a_scripts_traceback_has_no_frames_of_ours(line: str, tmp_path: object) -> None:
    script = tmp_path / "script.py"  # type: ignore[operator]
    script.write_text(f"import torch\n{line}\n", encoding="utf-8")
    run = [sys.executable, "-m", "fakegpu_lab", "run", "-q", "-d", "a100", str(script)]
    done = subprocess.run(run, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert line in done.stderr
    assert "fakegpu_lab" not in done.stderr


def test_below_the_users_line_there_are_no_frames_of_torchs_either_that_are_cpp_on_a_card() -> None:
    before = sys.excepthook
    lab.enable("a100", memory="1GiB")
    try:
        with pytest.raises(torch.OutOfMemoryError) as caught:
            torch.nn.Linear(2**14, 2**14, device="meta").to_empty(device="cuda")
        frames.trim(caught.value)
        shown = traceback.extract_tb(caught.value.__traceback__)
        assert [frame.name for frame in shown][1:] == ["to_empty", "_apply", "<lambda>"]
        assert sys.excepthook is not before
    finally:
        lab.disable()
    assert sys.excepthook is before


def test_a_program_that_ends_with_a_model_on_the_device_ends_in_silence() -> None:
    """Python 3.13 takes the modules' names away before an optimizer lets go of its tensors."""
    program = """
import fakegpu_lab as lab
import torch
lab.enable("t4")
model = torch.nn.Linear(3, 3).cuda()
optimizer = torch.optim.AdamW(model.parameters())
model(torch.ones(2, 3, device="cuda")).sum().backward()
optimizer.step()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
