"""``%%ranks``, and launchers of processes called in a notebook."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from IPython.core.error import UsageError

import fakegpu_lab as lab

if TYPE_CHECKING:
    from collections.abc import Iterator

    from IPython.core.interactiveshell import InteractiveShell


@pytest.fixture
def shell(ipython: InteractiveShell) -> Iterator[Any]:
    lab.load_ipython_extension(ipython)
    lab.enable("a100:4")
    yield ipython
    lab.disable()
    ipython.reset(new_session=False)


def run(shell: Any, text: str) -> None:
    result = shell.run_cell(text, store_history=False)
    result.raise_error()


def test_every_rank_has_its_own_environment_device_names_and_label(
    shell: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    run(shell, "counts = {'a': 1}\ntotal = 5\ndef double(): return 2 * total\n")
    run(
        shell,
        "%%ranks 3\n"
        "import os, torch\n"
        "rank = int(os.environ['RANK'])\n"
        "torch.cuda.set_device(int(os.environ['LOCAL_RANK']))\n"
        "counts['a'] += rank\n"
        "total = rank\n"
        "print(os.environ['WORLD_SIZE'], torch.cuda.current_device(), counts['a'], double())\n",
    )
    assert sorted(capsys.readouterr().out.splitlines()) == ["[rank0] 3 0 1 0", "[rank1] 3 1 2 2", "[rank2] 3 2 3 4"]
    assert shell.user_ns["counts"] == {"a": 1}
    assert shell.user_ns["total"] == 5
    assert "rank" not in shell.user_ns


def test_random_states_are_each_ranks_own(shell: Any, capsys: pytest.CaptureFixture[str]) -> None:
    run(
        shell,
        "import random, numpy, torch\n"
        "torch.manual_seed(3); numpy.random.seed(3); random.seed(3)\n"
        "expected = torch.rand(1).item(), numpy.random.rand(), random.random()\n"
        "torch.manual_seed(7); before = torch.get_rng_state()\n",
    )
    run(
        shell,
        "%%ranks 2 --backend nccl\n"
        "import torch.distributed as dist\n"
        "torch.manual_seed(3); numpy.random.seed(3); random.seed(3)\n"
        "dist.barrier()\n"
        "assert expected == (torch.rand(1).item(), numpy.random.rand(), random.random())\n"
        "torch.manual_seed(5 + dist.get_rank())\n"
        "first = torch.rand(1, device='cuda').item()\n"
        "dist.barrier()\n"
        "torch.cuda.initial_seed() == 5 + dist.get_rank()\n",
    )
    assert sorted(capsys.readouterr().out.splitlines()) == ["[rank0] True", "[rank1] True"]
    run(shell, "assert torch.equal(before, torch.get_rng_state())")


def test_models_are_copied_and_kept_if_asked(shell: Any) -> None:
    run(shell, "import torch\nnet = torch.nn.Linear(1, 1)\nstart = net.weight.item()\n")
    cell = (
        "import torch.distributed as dist\nwith torch.no_grad(): net.weight.fill_(dist.get_rank() + 1.)\ndist.barrier()"
    )
    run(shell, "%%ranks 2 --backend nccl\n" + cell)
    run(shell, "assert net.weight.item() == start")
    run(shell, "%%ranks 2 --backend nccl --keep\n" + cell + "\ndef made(): return net.weight.item()\n")
    run(shell, "assert net.weight.item() == 1\nnet = torch.nn.Linear(1, 1)\nassert made() == net.weight.item()")


def test_show(shell: Any, capsys: pytest.CaptureFixture[str]) -> None:
    run(shell, "%%ranks 3 --show 0,2\nprint('here')\n")
    assert capsys.readouterr().out == "[rank0] here\n[rank2] here\n"


def test_a_hang_is_told_in_the_cell_with_its_lines(shell: Any) -> None:
    cell = (
        "%%ranks 2 --backend nccl{}\nimport torch.distributed as dist\nif dist.get_rank() == 0:\n    dist.barrier()\n"
    )
    with pytest.raises(
        Exception, match=r"rank 0 waits in barrier, .*\(In\[\d+\], line 4: dist.barrier\(\)\)"
    ) as caught:
        run(shell, cell.format(""))
    assert "is inside `if dist.get_rank() == 0` (line 3)" in str(caught.value)
    with pytest.raises(Exception, match="taking the entire process down") as caught:
        run(shell, cell.format(" --timeout-like-nccl"))
    assert "rank 0 waits" not in str(caught.value)


def test_the_kernel_is_usable_after_an_error_in_one_rank(shell: Any, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ZeroDivisionError):
        run(shell, "%%ranks 2 --backend nccl\nimport torch.distributed as dist\ndist.barrier()\n1 // dist.get_rank()\n")
    capsys.readouterr()
    run(shell, "%%ranks 2 --backend nccl\nimport torch.distributed as dist\ndist.barrier()\ndist.get_rank()\n")
    assert sorted(capsys.readouterr().out.splitlines()) == ["[rank0] 0", "[rank1] 1"]


@pytest.mark.parametrize("line", ["%%ranks 0", "%%ranks 2 --show 5", "%%ranks 2 --show some"])
def test_what_cannot_be_asked_for(shell: Any, line: str) -> None:
    with pytest.raises(UsageError):
        run(shell, line + "\npass")


def test_mp_spawn_runs_in_the_kernel(shell: Any, capsys: pytest.CaptureFixture[str]) -> None:
    run(
        shell,
        "import os, torch, torch.distributed as dist, torch.multiprocessing as mp\n"
        "def main(rank, world_size, start):\n"
        "    os.environ['MASTER_ADDR'], os.environ['MASTER_PORT'] = 'localhost', '12355'\n"
        "    dist.init_process_group('nccl', rank=rank, world_size=world_size)\n"
        "    x = torch.full((1,), float(rank + start), device=rank)\n"
        "    dist.all_reduce(x)\n"
        "    print(x.item())\n"
        "    dist.destroy_process_group()\n"
        "mp.spawn(main, args=(3, 10), nprocs=3)\n"
        "assert 'MASTER_PORT' not in os.environ\n",
    )
    assert sorted(capsys.readouterr().out.splitlines()) == ["[rank0] 33.0", "[rank1] 33.0", "[rank2] 33.0"]
    with pytest.raises(Exception, match="-- Process 1 terminated with the following error:") as caught:
        run(shell, "def broken(rank): 1 // (1 - rank)\nmp.spawn(broken, nprocs=2)\n")
    assert type(caught.value).__name__ == "ProcessRaisedException"
    assert "ZeroDivisionError" in str(caught.value)


def test_accelerates_notebook_launcher_runs_in_the_kernel(shell: Any, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("accelerate")
    run(
        shell,
        "import torch\n"
        "from accelerate import Accelerator, notebook_launcher\n"
        "def train(factor):\n"
        "    accelerator = Accelerator()\n"
        "    net = torch.nn.Linear(2, 1)\n"
        "    optimizer = torch.optim.SGD(net.parameters(), 0.1)\n"
        "    data = torch.utils.data.DataLoader(torch.arange(8.).reshape(4, 2), batch_size=1)\n"
        "    net, optimizer, data = accelerator.prepare(net, optimizer, data)\n"
        "    for x in data:\n"
        "        optimizer.zero_grad()\n"
        "        accelerator.backward(net(x).sum() * factor)\n"
        "        optimizer.step()\n"
        "    total = accelerator.reduce(torch.ones(1, device=accelerator.device) * factor)\n"
        "    print(accelerator.process_index, accelerator.num_processes, accelerator.device, total.item())\n"
        "notebook_launcher(train, args=(3,), num_processes=2)\n",
    )
    out = capsys.readouterr().out.splitlines()
    assert out[0] == "Launching training on 2 GPUs."
    assert sorted(line for line in out if "cuda" in line) == ["[rank0] 0 2 cuda:0 6.0", "[rank1] 1 2 cuda:1 6.0"]
