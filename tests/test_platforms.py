"""Windows and macOS, as far as another system can tell: the package works without what they lack.

A process imports torch and what Jupyter and our commands import, loses the functions and modules that only Linux (or no
Windows) has, and then uses the package for the first time.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

PREPARE = """
import asyncio, concurrent.futures, ctypes, importlib.abc, multiprocessing.connection, os, pathlib, pkgutil, platform
import shutil, signal, subprocess, sys, tempfile, time, types

def lose(module, *names):
    for name in names:
        if hasattr(module, name): delattr(module, name)

def gone(*modules):
    for name in modules: sys.modules[name] = None

class WithoutRpc(importlib.abc.MetaPathFinder):  # as torch's builds for Windows
    def find_spec(self, name, *_):
        if name in ("torch.distributed.rpc", "torch.distributed.autograd"):
            lose(sys.modules["torch"]._C, "_rpc_init", "_dist_autograd_init", "_faulty_agent_init")

if system == "win32": sys.meta_path.insert(0, WithoutRpc())
import click.testing, IPython, ipywidgets, nbformat, psutil, pydantic, rich.console, torch, torch.distributed
import torch.utils.data, torch._dynamo, yaml

assert "fakegpu_lab" not in sys.modules
assert torch.distributed.rpc.is_available() == (system == "darwin")
"""

SYSTEMS = {
    "win32": '''
lose(os, *"""fork forkpty register_at_fork getuid geteuid getgid getegid getpgid killpg setsid sched_getaffinity
    uname mkfifo O_NOFOLLOW O_NONBLOCK O_DIRECTORY O_PATH WNOHANG WIFSIGNALED WTERMSIG WEXITSTATUS getloadavg sysconf
    statvfs chown lchown posix_spawn pread fchmod""".split())
lose(time, "clock_gettime", "clock_gettime_ns")
lose(signal, *"""SIGALRM SIGUSR1 SIGUSR2 SIGKILL SIGHUP SIGCHLD SIGPIPE SIGQUIT setitimer alarm
    pthread_sigmask pthread_kill sigwait siginterrupt ITIMER_REAL ITIMER_VIRTUAL ITIMER_PROF""".split())
signal.valid_signals = lambda: {signal.SIGINT, signal.SIGILL, signal.SIGFPE, signal.SIGSEGV, signal.SIGTERM}
gone("resource", "fcntl", "pwd", "grp", "termios", "tty", "pty", "posix")
multiprocessing.get_all_start_methods = lambda: ["spawn"]
sys.modules["nt"] = types.SimpleNamespace(_LOAD_LIBRARY_SEARCH_DEFAULT_DIRS=ctypes.DEFAULT_MODE,
                                          _LOAD_LIBRARY_SEARCH_DLL_LOAD_DIR=0, _getfullpathname=os.path.abspath)
ctypes._os = types.SimpleNamespace(name="nt", fspath=os.fspath)
platform.system = lambda: "Windows"
sys.platform = "win32"
''',
    "darwin": """
lose(os, "sched_getaffinity", "O_PATH")
platform.system = lambda: "Darwin"
sys.platform = "darwin"
""",
}

USE = """
for module in pkgutil.walk_packages(importlib.import_module("fakegpu_lab").__path__, "fakegpu_lab."):
    if not module.name.startswith(("fakegpu_lab.kernels", "fakegpu_lab.sidebar", "fakegpu_lab.nvml.injected",
                                   "fakegpu_lab.__main__", "fakegpu_lab.course.grade.outputs",
                                   "fakegpu_lab.ranks.torchrun.lightning")):
        importlib.import_module(module.name)

import fakegpu_lab as lab
import torch.distributed as dist
from fakegpu_lab.driver.environment import host_limits
host_limits.PROC = pathlib.Path("no-such-folder")
lab.enable("a100:2")

def step(device):
    net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Dropout(0.5), torch.nn.Linear(4, 2)).to(device)
    optimizer = torch.optim.Adam(net.parameters())
    net(torch.randn(3, 4, device=device)).sum().backward()
    optimizer.step()

with lab.record() as trace:
    step("cuda:1")
    step("cuda:0")
assert trace.kernels and trace.summary()
torch.cuda.synchronize()
assert host_limits.memory() == [] if sys.platform == "win32" else len(host_limits.memory()) <= 2
assert host_limits.processors() >= 1

def program():
    dist.init_process_group("nccl")
    one = torch.ones(2, device=dist.get_rank())
    dist.all_reduce(one)
    dist.destroy_process_group()
    return one.tolist()
assert lab.run_ranks(program, 2) == [[2.0, 2.0]] * 2
try:
    while True: signal.raise_signal(signal.SIGINT); step("cuda")
except KeyboardInterrupt:
    pass
loader = torch.utils.data.DataLoader(list(range(4)), pin_memory=True)
assert [one.is_pinned() for one in loader] == [True] * 4

from fakegpu_lab.cli.commands import cli
for line in ("doctor", "profiles a100", "plan --help", "lesson --help"):
    done = click.testing.CliRunner().invoke(cli, line.split())
    assert done.exit_code == 0, (line, done.output, done.exception)
lab.enable("a100")
step("cuda")
lab.snapshot(categories=True)
lab.disable()
assert not torch.cuda.is_available()
print("works")
"""


@pytest.mark.long
@pytest.mark.skipif(sys.platform == "win32", reason="is Windows")
@pytest.mark.parametrize("system", SYSTEMS)
def test_the_package_needs_nothing_that_a_system_lacks(system: str) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", f"system = {system!r}" + PREPARE + SYSTEMS[system] + USE],
        capture_output=True,
        text=True,
        env={**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"},
    )
    assert (done.stdout, done.returncode) == ("works\n", 0), done.stderr[-3000:]
