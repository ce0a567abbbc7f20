"""Post-mortems of out-of-memory errors, and that what they recommend does fit."""

from __future__ import annotations

import gc
import re
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import nbformat
import pytest
import torch
from nbclient import NotebookClient
from torch import nn
from torch.utils.checkpoint import checkpoint

import fakegpu_lab as lab
from fakegpu_lab import session
from fakegpu_lab.driver.memory_report import out_of_memory
from fakegpu_lab.notebook.out_of_memory import postmortem

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from fakegpu_lab.notebook.out_of_memory.postmortem import PostMortem
    from fakegpu_lab.notebook.out_of_memory.remedies import Remedy


@pytest.fixture(autouse=True)
def watched() -> Iterator[None]:
    gc.collect()
    session.on_change.append(postmortem.watch)
    yield
    session.on_change.remove(postmortem.watch)
    out_of_memory.forget()
    lab.disable()


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.mlp(self.norm(x))


class Net(nn.Module):
    def __init__(self, width: int = 512, depth: int = 8) -> None:
        super().__init__()
        self.checkpointed = False
        self.embed = nn.Embedding(1000, width)
        self.blocks = nn.Sequential(*(Block(width) for _ in range(depth)))
        self.head = nn.Linear(width, 1000)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embed(tokens)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.checkpointed else block(x)
        return self.head(x)


def train(batch: int, *, checkpointed: bool = False, autocast: bool = False, width: int = 512) -> None:
    model = Net(width).cuda()
    model.checkpointed = checkpointed
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(3):
        tokens = torch.randint(0, 1000, (batch, 129), device="cuda")
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.bfloat16, enabled=autocast):
            scores = model(tokens[:, :-1])
            loss = nn.functional.cross_entropy(scores.flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        optimizer.step()


def autopsy(program: Any, *args: Any, **kwargs: Any) -> PostMortem:
    with pytest.raises(torch.OutOfMemoryError) as caught:
        program(*args, **kwargs)
    assert postmortem.caused(caught.value)
    found = postmortem.take()
    assert found is not None
    assert postmortem.take() is None
    return found


def remedy(found: PostMortem, word: str) -> Remedy | None:
    return next((each for each in found.remedies if word in each.what), None)


@pytest.mark.parametrize("memory", ["1000MiB", "1100MiB", "1500MiB", "2300MiB", "3GiB"])
def test_what_is_recommended_does_fit(memory: str) -> None:
    """Each remedy is taken, and three steps of training run."""
    lab.enable("a100", memory=memory, compute="meta")
    batch = 8
    while True:
        try:
            train(batch)
        except torch.OutOfMemoryError:
            break
        batch *= 2
    found = postmortem.take()
    assert found is not None
    smaller = remedy(found, "batch")
    assert smaller is not None
    matched = re.fullmatch(rf"batch (\d+) instead of {batch}", smaller.what)
    assert matched is not None, smaller.what
    gc.collect()
    train(int(matched[1]))
    if remedy(found, "checkpoint"):
        train(batch, checkpointed=True)
    if remedy(found, "autocast"):
        train(batch, autocast=True)
    if remedy(found, "all of this GPU's 79.25 GiB: fakegpu-lab run -d a100, without --memory"):
        lab.enable("a100", compute="meta")
        train(batch)


def test_it_tells_what_filled_the_device_and_where_it_happened() -> None:
    lab.enable("a100", memory="1GiB", compute="meta")
    told = str(autopsy(train, 256))
    assert "Why cuda:0 (NVIDIA A100-SXM4-80GB, 1.00 GiB) was out of memory" in told
    assert re.search(
        r"test_postmortem\.py:\d+ requested \d+ MiB \(aten::\w+, in forward of Net\.[\w.]+\)\. Tensors were using "
        r"\d+ MiB of the \d+\.\d+ MiB available to them \(the GPU has 1\.00 GiB; ",
        told,
    )
    assert re.search(r"activations +\d+ MiB +\d+\.\d%", told)
    assert re.search(r"free +[\d.]+ MiB +[\d.]+%", told), "shares are of the available memory"
    assert "256×128×2048  float32  activations  the result of Linear" in told
    assert "not reserved" in told
    assert "lab.record()" in told


def test_lines_are_told_where_somebody_records() -> None:
    lab.enable("a100", memory="1GiB", compute="meta")
    with lab.record():
        told = str(autopsy(train, 256))
    assert "lab.record()" not in told
    assert re.search(r"the result of Linear +.*test_postmortem\.py:\d+", told)


def test_parameters_gradients_and_state_have_names() -> None:
    lab.enable("a100", memory="640MiB", compute="meta")

    def program() -> None:
        model = Net(1024, 1).cuda()
        optimizer = torch.optim.AdamW(model.parameters())
        model(torch.randint(0, 1000, (1, 8), device="cuda")).sum().backward()
        optimizer.step()

    found = autopsy(program)
    assert found.facts.phase == "optimizer"
    weights = ["Net.blocks.0.mlp.0.weight", "Net.blocks.0.mlp.2.weight"]
    assert [holder.what for holder in found.facts.largest] == [
        *weights,
        *(f"the gradient of {weight}" for weight in reversed(weights)),  # as large: in the order of their addresses
        *(f"{state} of {weight}" for weight in weights for state in ("exp_avg", "exp_avg_sq")),
        *(2 * ["of the optimizer's step itself"]),  # foreach AdamW's square roots
    ]


def test_variables_that_could_go_are_named() -> None:
    lab.enable("a100", memory="1GiB", compute="meta")

    def program() -> None:
        large = torch.zeros(80, 2**20, device="cuda")
        small = torch.zeros(2**20, device="cuda")
        torch.zeros(75, 2**20, device="cuda")
        del large, small

    found = autopsy(program)
    what = remedy(found, "del ")
    assert what is not None
    assert what.what.startswith("del large, if the program no longer needs it")
    assert "320 MiB" in what.why
    assert "300 MiB" in what.why
    assert what.needs == (80 + 1 + 75 - 80) * 2**22


def test_a_model_in_eval_mode_is_told_of_no_grad() -> None:
    lab.enable("a100", memory="1GiB", compute="meta")
    model = Net().cuda().eval()
    tokens = torch.zeros(64, 128, dtype=torch.int64, device="cuda")
    found = autopsy(model, tokens)
    assert "torch.no_grad()" in found.remedies[0].what
    gc.collect()
    with torch.no_grad():
        model(tokens)


def test_memory_in_pieces_is_told_and_expandable_segments_do_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    def program() -> None:
        pieces = [torch.zeros(7, 2**18, device="cuda") for _ in range(58)]  # two in each segment of 20 MiB
        torch.zeros(37, 2**20, device="cuda")
        del pieces

    lab.enable("a100", memory="1GiB", compute="meta")
    found = autopsy(program)
    assert found.facts.pieces == 29
    assert found.remedies[0].what.startswith("PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True")
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")
    lab.enable("a100", memory="1GiB", compute="meta")
    program()


def test_looking_holds_nothing_and_changes_no_word() -> None:
    """Who catches the error, lets go and tries again, succeeds; torch's own text is as without us."""

    def program() -> str:
        large = torch.zeros(100, 2**20, device="cuda")
        try:
            torch.zeros(100, 2**20, device="cuda")
        except torch.OutOfMemoryError as error:
            said = str(error)
        del large
        torch.zeros(100, 2**20, device="cuda")
        return said

    lab.enable("a100", memory="1GiB", compute="meta")
    watched = program()
    assert torch.cuda.memory_allocated() == 0
    session.on_change.remove(postmortem.watch)
    lab.enable("a100", memory="1GiB", compute="meta")
    assert program() == watched
    session.on_change.append(postmortem.watch)


def test_what_is_free_is_what_cuda_s_message_says() -> None:
    lab.enable("a100", memory="2GiB", compute="meta")
    held, gone = (torch.ones(2**20, device="cuda") for _ in range(2))
    del gone  # its block stays in the segment of the other one
    with pytest.raises(torch.OutOfMemoryError) as caught:
        torch.empty(2**31, dtype=torch.uint8, device="cuda")
    del held
    found = postmortem.take()
    assert found is not None
    said = re.search(r"of which ([\d.]+ GiB) is free", str(caught.value))
    row = re.search(r"^free +([\d.]+ GiB) ", str(found), re.MULTILINE)
    assert said is not None
    assert row is not None
    assert row[1] == said[1]
    assert re.search(r"^reserved by PyTorch, not in use +[\d.]+ MiB ", str(found), re.MULTILINE)


def test_outside_a_step_only_this_request_is_said_to_fit() -> None:
    lab.enable("a100", memory="2GiB", compute="meta")
    found = autopsy(torch.empty, 2**34, device="cuda")
    only = "This counts only the request that failed: what your program does next needs memory, too."
    assert f"What would have fit:\n{only}\n  1. " in str(found)
    assert f"<b>What would have fit</b></div><div>{only}</div><ol>" in found._repr_html_()
    lab.enable("a100", memory="1GiB", compute="meta")
    assert "What would have fit:\n  1. " in str(autopsy(train, 256)), "a whole step was reckoned with"


def test_of_a_request_larger_than_the_card_the_other_tensors_are_one_part() -> None:
    lab.enable("a100", memory="2GiB", compute="meta")
    weights = nn.Linear(1024, 1024).cuda()
    found = autopsy(torch.empty, 2**36, device="cuda")
    page = found._repr_html_()
    del weights
    assert "all tensors 4.00 MiB" in page, "each of its own colour would be too thin to see"
    assert "parameters 4" not in page.partition("<table")[0]
    assert "largest tensors" not in page
    assert "largest  " not in str(found)


def test_as_html_it_is_escaped_and_has_all() -> None:
    lab.enable("a100", memory="1GiB", compute="meta")
    found = autopsy(train, 256)
    found.facts.module = "<script>"
    page = found._repr_html_()
    assert "<script>" not in page
    assert "What would have fit" in page
    assert "The 10 largest tensors" in page


def test_in_a_notebook_it_stands_under_the_traceback_and_only_there() -> None:
    code = [
        "%load_ext fakegpu_lab\n%fakegpu a100 --memory 1GiB --compute meta",
        "import torch\nx = torch.zeros(80, 2**20, device='cuda')",
        "try:\n    torch.zeros(80, 2**20, device='cuda')\nexcept torch.OutOfMemoryError:\n    pass",
        "1 / 0",
        "y = torch.zeros(80, 2**20, device='cuda')",
    ]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in code])
    NotebookClient(notebook, timeout=120, kernel_name="python3", allow_errors=True).execute()
    kinds = [[output.output_type for output in cell.outputs] for cell in notebook.cells]
    assert kinds[2:] == [[], ["error"], ["error", "display_data"]]
    assert "fakegpu_lab" not in "".join(notebook.cells[4].outputs[0].traceback)
    data = notebook.cells[4].outputs[1].data
    assert "In[5], line 1 requested 320 MiB. Tensors" in data["text/plain"]
    assert "del x, if the program no longer needs it" in data["text/html"]
    assert "all of this GPU's 79.25 GiB: %fakegpu a100, without --memory:" in data["text/plain"]


def test_run_tells_it_after_the_traceback(tmp_path: Path) -> None:
    script = tmp_path / "large.py"
    script.write_text(
        "import torch\nx = torch.zeros(80, 2**20, device='cuda')\ny = torch.zeros(80, 2**20, device='cuda')\n"
    )
    command = [sys.executable, "-m", "fakegpu_lab", "run", "--memory", "1GiB", "--compute", "meta"]
    loud, quiet = (
        subprocess.run([*command, *option, str(script)], capture_output=True, text=True, timeout=120, check=False)
        for option in ([], ["-q"])
    )
    assert loud.returncode == quiet.returncode == 1
    assert loud.stderr.index("torch.OutOfMemoryError: CUDA out of memory") < loud.stderr.index("Why cuda:0")
    assert "large.py:3 requested 320 MiB" in loud.stderr
    assert "all of this GPU's 79.25 GiB: fakegpu-lab run -d a100, without --memory:" in loud.stderr
    assert "Why cuda:0" not in quiet.stderr
    assert quiet.stdout == ""


def test_one_request_that_is_too_large_is_told_as_what_it_is() -> None:
    lab.enable("a100", compute="meta")
    torch.ones(8, 8, device="cuda") @ torch.ones(8, 8, device="cuda")
    found = autopsy(lambda: torch.empty(100, 1024, 1024, 1024, dtype=torch.uint8, device="cuda"))
    told = str(found)
    assert "requested 100 GiB" in told
    assert "Tensors were using 8.12 MiB of the 78.82 GiB available to them (the GPU has 79.25 GiB;" in told
    assert "larger than all of that: freeing other tensors cannot make room for it" in told
    assert re.search(r"workspace +8\.12 MiB +0\.0%", told), "8 MiB did not fill the card"
    assert "fragmentation" not in told
    (card,) = found.remedies
    assert card.what.endswith(" h200")


def test_the_colours_of_the_bar_have_a_key_and_the_line_at_its_end_a_name() -> None:
    lab.enable("a100", memory="1GiB", compute="meta")
    page = autopsy(train, 256)._repr_html_()
    key = page.partition('<ul aria-label="Colors"')[2].partition("</ul>")[0]
    assert re.search(r"</span>activations \d+ MiB</li>", key)
    assert "</span>the request " in key
    assert re.search(r"</span>end of the \d+\.\d\d MiB available</li>", key)


def test_a_card_of_which_only_a_part_was_taken_is_not_to_become_a_smaller_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fakegpu_lab.notebook.out_of_memory.remedies.shell", lambda: None)
    lab.enable("a100", memory="2GiB", compute="meta")
    found = autopsy(lambda: torch.empty(50 * 2**30, dtype=torch.uint8, device="cuda"))
    (own,) = found.remedies
    assert own.what == "all of this GPU's 79.25 GiB: fakegpu-lab run -d a100, without --memory"
    lab.enable("a100", memory="2GiB", compute="meta")
    (larger,) = autopsy(lambda: torch.empty(100 * 2**30, dtype=torch.uint8, device="cuda")).remedies
    assert larger.what.endswith(" h200"), "no T4 and no A100"
