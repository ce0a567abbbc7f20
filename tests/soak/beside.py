"""A training with ranks, a recording and Stop's guard beside tools that change Python: ``python beside.py [TOOL …]``.

Each tool runs a program in a process of its own, which must print the same as without the tool. A tool that is not
installed is skipped.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

PROGRAM = """
import torch, torch.distributed as dist, fakegpu_lab as lab
def ranks():
    dist.init_process_group("nccl")
    x = torch.ones(2, device=dist.get_rank())
    dist.all_reduce(x)
    dist.destroy_process_group()
    return x.tolist()
def train():
    torch.manual_seed(0)
    net = torch.nn.Linear(4, 2).cuda()
    optimizer = torch.optim.Adam(net.parameters())
    for _ in range(3):
        optimizer.zero_grad()
        net(torch.ones(3, 4).cuda()).sum().backward()
        optimizer.step()
    return round(net.weight.sum().item(), 6)
def main():
    lab.enable("a100:2")
    with lab.record() as trace:
        weight = train()
    print(weight, len(trace.kernels) > 20, trace.kernels[-1].line.split(":")[-1].isdigit(), lab.run_ranks(ranks, 2))
"""

CALLS = "if __name__ == '__main__':\n    main()\n"

FORKS = """
import multiprocessing, torch
def child(queue):
    torch.manual_seed(0)
    queue.put(torch.rand(2, device="cuda").sum().item() > 0)
if __name__ == '__main__':
    context = multiprocessing.get_context({how!r})
    if {how!r} != "fork":
        lab.enable("a100:2")
    queue = context.Queue()
    process = context.Process(target=child, args=(queue,))
    if {how!r} == "fork":  # CUDA must not be used before
        lab.enable("a100:2")
    process.start()
    assert queue.get(timeout=200)
    process.join()
    assert process.exitcode == 0
    main()
"""


class Tool(NamedTuple):
    """What runs the program.

    Attributes
    ----------
    needs
        The package.
    command
        What comes after ``python``; ``{file}`` is the program.
    code
        What comes after the program's functions.
    typed
        What is typed at its prompt.
    """

    needs: str = ""
    command: str = "{file}"
    code: str = CALLS
    typed: str = ""


TOOLS = {
    "nothing": Tool(),
    "pdb": Tool(command="-m pdb {file}", typed="b {file}:3\nc\nc\nc\nc\nq\n"),
    "pdb, step by step": Tool(command="-m pdb {file}", typed="b train\nc\n" + "n\n" * 8 + "cl 1\nc\nq\n"),
    "debugpy": Tool("debugpy", "-Xfrozen_modules=off -m debugpy --listen 127.0.0.1:0 {file}"),
    "coverage": Tool("coverage", "-m coverage run --data-file={file}.data --branch {file}"),
    "coverage, sysmon": Tool("coverage", "-m coverage run --data-file={file}.data {file}"),
    "cProfile": Tool(command="-m cProfile -o {file}.out {file}"),
    "trace": Tool(command="-m trace --count --missing --coverdir={file}.dir -s --ignore-dir=/ {file}"),
    "tracemalloc": Tool(command="-X tracemalloc=5 {file}"),
    "warnings as errors": Tool(command="-W error::RuntimeWarning -X dev {file}"),
    "python -O": Tool(command="-OO {file}"),
    "xdist": Tool("xdist", "-m pytest -q -p no:cacheprovider -n 2 {file}",
                  "import pytest\n@pytest.mark.parametrize('n', range(6))\ndef test(n, capsys):\n    main()\n"
                  "    assert capsys.readouterr().out.startswith('-') or True\n"),
    "fork": Tool(code=FORKS.format(how="fork")),
    "spawn": Tool(code=FORKS.format(how="spawn")),
    "forkserver": Tool(code=FORKS.format(how="forkserver")),
    "concurrent.futures": Tool(code="""
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
if __name__ == '__main__':
    lab.enable("a100:2")
    with ThreadPoolExecutor(4) as pool:
        assert len(set(pool.map(lambda _: torch.ones(4, device="cuda").sum().item(), range(8)))) == 1
    import multiprocessing
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as pool:
        assert all(one < 0 or one > 0 for one in pool.map(int, range(1, 5)))
    main()
"""),
    "ipyparallel": Tool("ipyparallel", code="""
if __name__ == '__main__':
    import ipyparallel
    with ipyparallel.Cluster(n=2, log_level=50) as clients:
        def there():
            import fakegpu_lab as lab, torch
            lab.enable("a100")
            return torch.ones(3, device="cuda").sum().item()
        assert clients[:].apply_sync(there) == [3.0, 3.0]
    main()
"""),
    "Dask": Tool("distributed", code="""
if __name__ == '__main__':
    from distributed import Client
    def there(x):
        import fakegpu_lab as lab, torch
        lab.enable("a100")
        return torch.ones(x, device="cuda").sum().item()
    with Client(n_workers=2, threads_per_worker=2, dashboard_address=None) as client:
        assert client.gather(client.map(there, range(1, 9))) == [float(x) for x in range(1, 9)]
    main()
"""),
    "joblib": Tool("joblib", code="""
if __name__ == '__main__':
    import joblib
    lab.enable("a100:2")
    def there(x): return torch.full((2,), float(x), device="cuda").sum().item()
    assert joblib.Parallel(2, prefer="threads")(joblib.delayed(there)(x) for x in range(4)) == [0.0, 2.0, 4.0, 6.0]
    main()
"""),
    "TensorFlow": Tool("tensorflow", code="import tensorflow\n" + CALLS),
    "JAX": Tool("jax", code="import jax.numpy\nassert jax.numpy.ones(3).sum() == 3\n" + CALLS),
    "an error inside enable": Tool(code="""
import fakegpu_lab.ranks.install as late
from fakegpu_lab import session
def fails(): raise KeyError("on purpose")
was, late.install = late.install, fails
before = dict(vars(torch.Tensor)), dict(vars(torch.cuda))
for _ in range(3):
    try: lab.enable("a100")
    except KeyError: pass
    else: raise SystemExit("no error")
    assert not session.enabled() and not torch.cuda.is_available()
    assert (dict(vars(torch.Tensor)), dict(vars(torch.cuda))) == before
late.install = was
""" + CALLS),
}  # fmt: skip


def main() -> None:
    wrong, right = 0, ""
    with tempfile.TemporaryDirectory() as folder:
        for name in ("nothing", *sys.argv[1:]) if sys.argv[1:] else TOOLS:
            tool = TOOLS[name]
            if tool.needs and importlib.util.find_spec(tool.needs) is None:
                print(f"{name:24} is not installed", flush=True)
                continue
            file = Path(folder, "test_program.py")
            file.write_text(PROGRAM + tool.code)
            done = subprocess.run(
                [sys.executable, *tool.command.format(file=file).split()],
                input=tool.typed.format(file=file),
                capture_output=True,
                text=True,
                timeout=600,
                env=os.environ | {"OMP_NUM_THREADS": "1"},
                cwd=folder,
            )
            right = right or done.stdout.strip()
            good = done.returncode == 0 and (right in done.stdout or "6 passed" in done.stdout)
            wrong += not good
            print(f"{name:24} {'works' if good else 'FAILS'}", flush=True)
            if not good:
                print(done.stdout[-1500:], done.stderr[-3000:])
            elif done.stderr.strip():
                print("    prints:", done.stderr.strip().splitlines()[-1][:200])
    sys.exit(wrong)


if __name__ == "__main__":
    main()
