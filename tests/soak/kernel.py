"""Presses Stop in a real kernel while cells run: ``python kernel.py [--plain] [--seed N] COUNT [KIND …]``.

After each press, the kernel must live, the cell must have been interrupted, and the machine, the grad mode, autocast
and torch's modes must be as before; a training step must work. It prints a table: presses per kind, kernels that died,
presses that were lost, and inconsistencies. ``--plain`` runs the same cells on the CPU, without this package.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import queue
import random
import signal
import sys
import tempfile
import textwrap
import time
from pathlib import Path
from typing import Any, NamedTuple

import psutil
from jupyter_client.manager import KernelManager

LESSON_01 = Path(__file__).parents[2] / "lessons" / "source" / "01-device-placement" / "01-device-placement.ipynb"

LATE = 30.0
"""Seconds after which a command that has not ended counts as not interrupted; it runs for longer."""

PATIENCE = 300.0
"""Seconds within which a kernel answers anything, on a machine that does something else, too."""


FOUND = "After the press:"


class Kind(NamedTuple):
    """A kind of cell.

    Attributes
    ----------
    cell
        What is interrupted.
    setup
        What runs once before.
    delay
        Between how many seconds after its begin Stop is pressed.
    plain
        Whether it runs without this package, too.
    fresh
        Whether each press needs a new kernel, because the cell imports something.
    ends
        Whether the cell ends without an error when it is interrupted (a command that ``!`` runs).
    """

    cell: str
    setup: str = ""
    delay: tuple[float, float] = (0.05, 0.4)
    plain: bool = True
    fresh: bool = False
    ends: bool = False


COMMON = """
import faulthandler, gc, os, signal, sys, threading, time, torch
faulthandler.register(signal.SIGUSR1, all_threads=True)
from torch import nn
dev = "cuda" if torch.cuda.is_available() else "cpu"

def training(kind=torch.optim.SGD, **options):
    net = nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 4)).to(dev)
    optimizer = kind(net.parameters(), lr=1e-3, **options)
    data = torch.randn(16, 32, device=dev)
    def step():
        optimizer.zero_grad()
        net(data).square().mean().backward()
        optimizer.step()
    return step

ended = []
def forever(do):
    ended.clear()
    until = time.monotonic() + 30
    while time.monotonic() < until:
        do()
    ended.append("in the end")

plain_step = training()

def inconsistent():
    gc.collect()
    said = []
    if not torch.is_grad_enabled(): said.append("no gradients")
    if torch.is_inference_mode_enabled(): said.append("inference mode")
    for kind in ("cpu", "cuda"):
        if torch.is_autocast_enabled(kind): said.append(f"autocast of {kind}")
    if torch._C._len_torch_function_stack() or torch._C._len_torch_dispatch_stack(): said.append("a mode of torch")
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler: said.append("SIGINT")
    if any(thread.name.startswith("rank ") for thread in threading.enumerate()): said.append("threads of ranks")
    if torch.distributed.is_initialized(): said.append("a process group")
    if "lab" in globals():
        from interrupts import inconsistent
        if torch.cuda.current_device() != 0: said.append("the current device")
        if torch.cuda.current_stream() != torch.cuda.default_stream(): said.append("the current stream")
        said += inconsistent(lab.machine())
        with lab.record() as trace:
            plain_step()
        if not 10 < len(trace.kernels) < 100: said.append(f"{len(trace.kernels)} kernels in a step")
    plain_step()
    return said
"""

LAB = """
import sys; sys.path.insert(0, {folder!r})
import fakegpu_lab as lab
%load_ext fakegpu_lab
lab.enable("a100:2")
"""

RANKS = """
def program():
    import torch.distributed as dist
    dist.init_process_group("nccl")
    torch.cuda.set_device(dist.get_rank())
    leaf = torch.ones(8, 8, device="cuda", requires_grad=True)
    for _ in range(rounds):
        (leaf * 2).sum().backward()
        dist.all_reduce(leaf.grad)
    dist.destroy_process_group()
"""

DDP = """%%ranks 2
import torch, torch.distributed as dist, time
from torch.nn.parallel import DistributedDataParallel as DDP
dist.init_process_group("nccl")
torch.cuda.set_device(dist.get_rank())
net = DDP(torch.nn.Linear(32, 32).cuda())
until = time.monotonic() + 30
while time.monotonic() < until:
    net(torch.randn(4, 32, device="cuda")).sum().backward()
"""

PROGRAM = """
import os, time, torch, torch.distributed as dist
if "RANK" in os.environ:
    dist.init_process_group("gloo" if not torch.cuda.is_available() else "nccl")
    x = torch.ones(3, device="cuda" if torch.cuda.is_available() else "cpu")
else:
    x = torch.ones(3, device="cuda")
until = time.monotonic() + 60
while time.monotonic() < until:
    dist.all_reduce(x) if "RANK" in os.environ else x.add_(1)
    x.sum().item()
"""

LESSON = """
import json
from IPython.utils.capture import capture_output
from pathlib import Path
checks = []
with capture_output():
    for cell in json.loads(Path({lesson!r}).read_text())["cells"]:
        text = "".join(cell["source"])
        if text.startswith("%%check"):
            checks.append(text.removeprefix("%%check ").partition(chr(10))[::2])
        if cell["cell_type"] == "code":
            get_ipython().run_cell(text).raise_error()
plain_step = training()
def all_checks():
    with capture_output():
        for name, text in checks:
            get_ipython().run_cell_magic("check", name, text)
""".replace("{lesson!r}", repr(str(LESSON_01)))

KINDS = {
    "train": Kind("forever(step)", "step = training()"),
    "adam": Kind("forever(step)", "step = training(torch.optim.Adam)"),
    "adamw for each": Kind("forever(step)", "step = training(torch.optim.AdamW, foreach=False)"),
    "momentum": Kind("forever(step)", "step = training(torch.optim.SGD, momentum=0.9)"),
    "backward": Kind(
        "forever(deep)",
        """
        leaf = torch.randn(8, 8, device=dev, requires_grad=True)
        def deep():
            value = leaf
            for _ in range(20): value = value * 2 + 1
            value.sum().backward()
        """,
    ),
    "no_grad": Kind("with torch.no_grad(): forever(lambda: x @ x)", "x = torch.randn(64, 64, device=dev)"),
    "inference": Kind("with torch.inference_mode(): forever(lambda: x @ x)", "x = torch.randn(64, 64, device=dev)"),
    "autocast": Kind(
        """
        def step():
            optimizer.zero_grad()
            with torch.autocast(dev, dtype=torch.bfloat16):
                loss = net(x).square().mean()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        scaler = torch.amp.GradScaler(dev, init_scale=8.0)
        forever(step)
        """,
        """
        net = nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 4)).to(dev)
        optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
        x = torch.randn(16, 32, device=dev)
        """,
    ),
    "copies": Kind("forever(lambda: x.to(dev).sum().item())", "x = torch.randn(64, 64)"),
    "storage": Kind(
        """
        held = []
        def churn():
            held.append(torch.empty(len(held) % 7 << 20, dtype=torch.uint8, device=dev))
            if len(held) > 20:
                held.clear()
                if dev == "cuda": torch.cuda.empty_cache()
        forever(churn)
        """
    ),
    "print": Kind("forever(lambda: repr(x))", "x = torch.randn(8, 8, device=dev)"),
    "hooks": Kind(
        "forever(lambda: net(x).sum().backward())",
        """
        net = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8)).to(dev)
        for layer in net: layer.register_full_backward_hook(lambda *_: None)
        x = torch.randn(4, 8, device=dev, requires_grad=True)
        """,
    ),
    "loader": Kind(
        "forever(lambda: [batch[0].to(dev) for batch in loader])",
        """
        from torch.utils.data import DataLoader, TensorDataset
        loader = DataLoader(TensorDataset(torch.randn(64, 8)), batch_size=8, pin_memory=dev == "cuda")
        """,
    ),
    "loader's workers": Kind(
        "forever(lambda: [batch[0].to(dev) for batch in loader])",
        """
        from torch.utils.data import DataLoader, TensorDataset
        loader = DataLoader(TensorDataset(torch.randn(64, 8)), batch_size=8, num_workers=2)
        """,
        delay=(0.05, 1.0),
    ),
    "profiler": Kind(
        """
        def profiled():
            with torch.profiler.profile():
                step()
        forever(profiled)
        """,
        "step = training()",
    ),
    "alarm": Kind(
        """
        import random
        class Timeout(Exception): pass
        def ring(*_):
            if sys.exc_info()[0] is None: raise Timeout  # else Stop is on its way up, and Python would lose it
        before = signal.signal(signal.SIGALRM, ring)
        def timed():
            try:
                signal.setitimer(signal.ITIMER_REAL, random.uniform(0.005, 0.03))
                while True: step()
            except Timeout: pass
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
        try:
            forever(timed)
        finally:
            signal.signal(signal.SIGALRM, before)
        """,
        "step = training()",
    ),
    "widget": Kind(
        "CLICK",
        """
        import ipywidgets
        button = ipywidgets.Button(description="train")
        button.on_click(lambda _: forever(step))
        step = training()
        print("WIDGET", button.model_id)
        """,
    ),
    "slider": Kind(
        "SLIDE",
        """
        import ipywidgets
        slider = ipywidgets.IntSlider()
        def moved(_): forever(step)
        slider.observe(moved, "value")
        step = training()
        print("WIDGET", slider.model_id)
        """,
    ),
    "panel": Kind(
        "forever(step)",
        "step = training(); panel = lab.panel(live=True)",
        plain=False,
    ),
    "timer of asyncio": Kind(
        """
        import asyncio
        done = asyncio.get_running_loop().create_future()
        def later():
            try:
                forever(step)
            except BaseException as error:
                done.set_exception(error if isinstance(error, Exception) else RuntimeError(repr(error)))
            else:
                done.set_result(None)
        asyncio.get_running_loop().call_later(0.01, later)
        await done
        """,
        "step = training()",
    ),
    "await": Kind(
        """
        import asyncio
        ended.clear()
        until = time.monotonic() + 30
        while time.monotonic() < until:
            step()
            await asyncio.sleep(0)
        """,
        "step = training()",
    ),
    "thread": Kind(
        """
        stopping = threading.Event()
        def endless():
            while not stopping.is_set(): step()
        thread = threading.Thread(target=endless)
        thread.start()
        try:
            thread.join(30)
        finally:
            stopping.set()
            thread.join()
        """,
        "step = training()",
    ),
    "gpuprofile": Kind("%%gpuprofile\nforever(step)", "step = training()", plain=False),
    "compiled": Kind(
        "forever(compiled)",
        """
        step = training()
        net = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8)).to(dev)
        fast = torch.compile(net, backend="eager")
        x = torch.randn(4, 8, device=dev)
        def compiled(): fast(x).sum().backward()
        compiled()
        """,
    ),
    "streams": Kind(
        """
        def both():
            with torch.cuda.stream(side):
                step()
            side.synchronize()
        forever(both)
        """,
        "step = training(); side = torch.cuda.Stream()",
        plain=False,
    ),
    "graph": Kind(
        """
        def again():
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph): y = x @ x
            for _ in range(5): graph.replay()
        forever(again)
        """,
        "x = torch.randn(16, 16, device=dev); x @ x",
        plain=False,
    ),
    "record": Kind(
        """
        def recorded():
            with lab.record() as trace: step()
            trace.summary()
        forever(recorded)
        """,
        "step = training()",
        plain=False,
    ),
    "snapshot": Kind(
        """
        def look():
            step()
            lab.snapshot(categories=True)
        forever(look)
        """,
        "step = training()",
        plain=False,
    ),
    "check": Kind(
        """
        %%check sum
        expect.equal(forever(step), 3)
        """,
        "step = training()",
        plain=False,
    ),
    "check of a run": Kind(
        "%%check sum\nexpect.run(lambda: forever(step)); expect.kernels(at_least=1)", "step = training()", plain=False
    ),
    "checks of a lesson": Kind("forever(all_checks)", LESSON, plain=False, delay=(0.05, 2.0)),
    "exercise": Kind("%%exercise sum\nforever(step)", "step = training()", plain=False),
    "reset": Kind(
        """
        def restart():
            lab.enable("t4:2")
            torch.ones(3, device="cuda").sum().item()
            lab.disable()
        try:
            forever(restart)
        finally:
            lab.enable("a100:2")
            plain_step = training()
        """,
        plain=False,
    ),
    "run_ranks": Kind("rounds = 20; forever(lambda: lab.run_ranks(program, 2))", RANKS, plain=False),
    "ranks": Kind("%%ranks 2\nrounds = 10**9; program()", RANKS, plain=False),
    "ranks with DDP": Kind(DDP, plain=False, delay=(0.05, 2.0)),
    "import of DDP": Kind(DDP, plain=False, fresh=True, delay=(0.2, 6.0)),
    "import of dynamo": Kind(
        "import torch._dynamo, torch.distributed.fsdp; time.sleep(30)", fresh=True, delay=(0.1, 6.0)
    ),
    "import of lightning": Kind("import lightning; time.sleep(30)", fresh=True, delay=(0.1, 12.0)),
    "torchrun": Kind(
        "!{sys.executable} -m torch.distributed.run --nproc-per-node 2 {file}", PROGRAM, ends=True, delay=(1.0, 12.0)
    ),
    "fakegpu-lab run": Kind("!{sys.executable} -m fakegpu_lab run {file}", PROGRAM, plain=False, ends=True,
                            delay=(0.5, 8.0)),
    "fakegpu-lab lesson check": Kind(
        f"!{{sys.executable}} -m fakegpu_lab lesson check {LESSON_01.parent}", plain=False, ends=True,
        delay=(0.5, 15.0)),
}  # fmt: skip


class Died(Exception):
    """The kernel has ended."""


class Kernel:
    """A kernel with what all cells need."""

    def __init__(self, plain: bool) -> None:
        self.errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed with the kernel
        self.manager = KernelManager(kernel_cmd=[sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"])
        self.manager.start_kernel(stderr=self.errors)
        self.client = self.manager.client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=PATIENCE)
        if not plain:
            self.run(LAB.format(folder=str(Path(__file__).parent)))
        self.run(COMMON)

    def send(self, cell: str) -> str:
        return str(self.client.execute(cell, store_history=False))

    def use(self, widget: str, value: int) -> str:
        """Click a button, or move a slider."""
        data: dict[str, Any] = {"method": "custom", "content": {"event": "click"}}
        if value:
            data = {"method": "update", "state": {"value": value}, "buffer_paths": []}
        message = self.client.session.msg("comm_msg", {"comm_id": widget, "data": data})
        self.client.shell_channel.send(message)
        return str(message["header"]["msg_id"])

    def messages(self, of: str, seconds: float) -> Any:
        """What the kernel publishes about a request, until it is done with it."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            try:
                message = self.client.get_iopub_msg(timeout=0.3)
            except queue.Empty:
                if not self.manager.is_alive():
                    raise Died from None
                continue
            if message["parent_header"].get("msg_id") == of:
                yield message
                if message["content"].get("execution_state") == "idle":
                    return
        raise TimeoutError(self.where())

    def where(self) -> str:
        """What the threads of the kernel and of its children are doing."""
        kernel = psutil.Process(self.manager.provisioner.pid)
        for process in (kernel, *kernel.children(recursive=True)):
            print(process, flush=True)
            with contextlib.suppress(psutil.Error):  # a zombie
                if "ipykernel_launcher" in process.cmdline():  # it, or forked from it
                    process.send_signal(signal.SIGUSR1)
                    time.sleep(1)
        return self.last_words(20_000)

    def run(self, cell: str) -> str:
        """Run a cell to its end, and return what it printed."""
        printed = ""
        for message in self.messages(self.send(cell), PATIENCE):
            if message["msg_type"] == "error":
                raise RuntimeError("\n".join(message["content"]["traceback"]))
            printed += message["content"].get("text", "")
        return printed

    def close(self) -> None:
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)
        self.errors.close()

    def last_words(self, length: int = 4_000) -> str:
        self.errors.seek(0)
        return self.errors.read()[-length:]


class Count:
    """What the presses of one kind came to; `printed` are those after which there was something on stderr."""

    def __init__(self) -> None:
        self.presses = self.dead = self.lost = self.inconsistent = self.printed = 0


class Presser:
    """Presses Stop."""

    def __init__(self, plain: bool, seed: int) -> None:
        self.plain = plain
        self.dice = random.Random(seed)
        self.kernel: Kernel | None = None
        folder = tempfile.mkdtemp()
        self.program = Path(folder, "program.py")
        self.program.write_text(PROGRAM)

    def close(self) -> None:
        if self.kernel is not None:
            self.kernel.close()
            self.kernel = None

    def kind(self, name: str, count: int) -> Count:
        """Press Stop `count` times in cells of a kind."""
        kind, counts = KINDS[name], Count()
        widget = None
        prepared = False
        while counts.presses < count:
            if self.kernel is None or kind.fresh:
                self.close()
                self.kernel = Kernel(self.plain)
                prepared = False
            if not prepared:
                setup = "" if kind.setup == PROGRAM else textwrap.dedent(kind.setup)
                printed = self.kernel.run(setup + f"\nfile = {str(self.program)!r}")
                widget = printed.split()[-1] if "WIDGET" in printed else None
                prepared = True
            counts.presses += 1
            try:
                said = self._press(kind, widget, counts.presses)
                counts.lost += bool(said)
                printed = self.kernel.run(f"print({FOUND!r}, inconsistent())")
                also = printed[: printed.rindex(FOUND)].strip()
                wrong = ast.literal_eval(printed[printed.rindex(FOUND) + len(FOUND) :].split("\n")[0].strip())
                if said or wrong or also:
                    print(f"{name}: {said} {wrong or ''} {also}", flush=True)
                counts.inconsistent += bool(wrong)
                counts.printed += bool(also)
                if wrong:
                    self.close()  # what is wrong would be counted again
            except (Died, TimeoutError, RuntimeError) as error:
                counts.dead += 1
                status = self.kernel.manager.provisioner.process.poll()
                said = error or f"with status {status}: {self.kernel.last_words()}"
                print(f"{name}: {type(error).__name__} {said}", flush=True)
                self.close()
        if kind.setup == LESSON:
            self.close()  # other kinds' exercises are not that lesson's
        return counts

    def _press(self, kind: Kind, widget: str | None, number: int) -> str:
        """Run the cell and press Stop; what happened if the interrupt was lost."""
        kernel = self.kernel
        assert kernel is not None
        cell = textwrap.dedent(kind.cell).strip()
        if widget is None:
            request = kernel.send(cell)
        else:
            request = kernel.use(widget, number % 100 + 1 if cell == "SLIDE" else 0)
        messages = kernel.messages(request, PATIENCE)
        next(messages)  # it is busy
        time.sleep(self.dice.uniform(*kind.delay))
        kernel.manager.interrupt_kernel()
        began, said = time.monotonic(), "no error"
        for message in messages:
            if message["msg_type"] == "error":
                said = message["content"]["traceback"][-1]
            elif message["content"].get("name") == "stderr":
                said += "; " + message["content"]["text"]
        if kind.ends:
            arrived = time.monotonic() - began < LATE
        elif widget is not None:
            arrived = kernel.run("print(ended)").strip() == "[]"
        else:
            arrived = "KeyboardInterrupt" in said or "CancelledError" in said  # of a cell that awaits
        return "" if arrived else f"lost after {time.monotonic() - began:.0f} s: {said}"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--plain", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("count", type=int)
    parser.add_argument("kinds", nargs="*")
    asked = parser.parse_args()
    names = asked.kinds or list(KINDS)
    presser = Presser(asked.plain, asked.seed)
    wrong = 0
    print(f"{'':24}  presses  dead  lost  inconsistent  printed")
    with contextlib.closing(presser):
        for name in names:
            if asked.plain and not KINDS[name].plain:
                continue
            found = presser.kind(name, asked.count)
            wrong += found.dead + found.lost + found.inconsistent
            counts = f"{found.presses:7}  {found.dead:4}  {found.lost:4}  {found.inconsistent:12}  {found.printed:7}"
            print(f"{name:24}  {counts}", flush=True)
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
