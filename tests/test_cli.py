"""The command line, as a shell sees it: what is printed where, and the exit status."""

from __future__ import annotations

import gzip
import json
import os
import re
import runpy
import signal
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from fakegpu_lab import cli, session
from fakegpu_lab.hardware.snapshot import Snapshot

PROGRAMS = Path(__file__).parent / "programs"
TABLE = "device  allocated  reserved"


def lab(*args: str, cwd: Path | None = None, stdin: str | None = None, **env: str) -> subprocess.CompletedProcess[str]:
    """Run ``fakegpu-lab args`` in a process of its own."""
    clean = {key: value for key, value in os.environ.items() if key not in ("FAKEGPU_LAB_MACHINE", "JPY_PARENT_PID")}
    command = [sys.executable, "-m", "fakegpu_lab", *args]
    return subprocess.run(
        command, cwd=cwd, env=clean | env, input=stdin, capture_output=True, text=True, check=False, timeout=120
    )


def refused(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *args: str) -> str:
    """Run ``fakegpu-lab args`` in this process; it must say one sentence on stderr and exit with 2."""
    monkeypatch.setattr(sys, "argv", ["fakegpu-lab", *args])
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(os, "environ", dict(os.environ))
    with pytest.raises(SystemExit) as exit_:
        cli.main()
    said = capsys.readouterr()
    assert exit_.value.code == 2
    assert said.out == ""
    assert "Traceback" not in said.err
    assert len(said.err.splitlines()) == 1
    assert not session.enabled()
    return said.err.removeprefix("fakegpu-lab: ").strip()


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


# --- programs ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "device"), [("devices", "cuda:0"), ("regression", "cuda:0"), ("convolution", "cuda:1")]
)
def test_programs_train_on_the_gpu_as_on_the_cpu(name: str, device: str, capsys: pytest.CaptureFixture[str]) -> None:
    script = PROGRAMS / f"{name}.py"
    ran = lab("run", "-d", "a100:2", str(script))
    runpy.run_path(str(script))
    on_cpu = losses(capsys.readouterr().out)

    assert ran.returncode == 0, ran.stderr
    assert device in ran.stdout
    assert losses(ran.stdout) == on_cpu
    if name != "devices":
        first, *_, last = (float(line.split()[-1]) for line in on_cpu)
        assert last < first / 10
    assert ran.stderr.startswith("\nfakegpu-lab a100:2:")
    row = next(line for line in ran.stderr.splitlines() if line.startswith(device)).split()
    assert row[1] != "0", "memory was allocated"
    kernels, busy, unit = row[-3:]
    assert kernels != "0", "kernels were launched"
    assert float(busy) > 0
    assert unit in ("µs", "ms", "s")


def losses(said: str) -> list[str]:
    """The lines with losses, without the devices at their ends."""
    return [re.sub(r" (cpu|cuda:\d)$", "", line) for line in said.splitlines() if line.startswith("loss:")]


def test_child_processes_have_the_machine_and_print_no_table(here: Path) -> None:
    (here / "my-gpu.yaml").write_text("based_on: t4\nname: My GPU\n")
    (here / "elsewhere").mkdir()
    (here / "children.py").write_text(
        """
import os
import torch
import torch.multiprocessing as mp
from torch.utils.data import DataLoader, TensorDataset

def child(rank):
    print("child", torch.cuda.get_device_name(1), torch.ones(2, device="cuda:1").sum().item(), flush=True)

if __name__ == "__main__":
    os.chdir("elsewhere")
    mp.spawn(child, nprocs=1)
    for (batch,) in DataLoader(TensorDataset(torch.arange(4.0)), batch_size=4, num_workers=1):
        print("batch", batch.to("cuda").tolist())
"""
    )
    ran = lab("run", "-d", "./my-gpu.yaml:2", "children.py", cwd=here)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == "child My GPU 2.0\nbatch [0.0, 1.0, 2.0, 3.0]\n"
    assert ran.stderr.count(TABLE) == 1
    assert ran.stderr.startswith("\nfakegpu-lab my-gpu.yaml:2: ")


def test_running_out_of_memory_is_an_error_as_any_and_is_reported(here: Path) -> None:
    (here / "big.py").write_text(
        "import torch\nx = torch.ones(3).to('cuda')\ntorch.empty(3 * 2**30, dtype=torch.uint8, device='cuda')\n"
    )
    writes = ("--report", "out.json", "--chrome", "time.json")
    ran = lab("run", "-d", "a100", "--memory", "2GiB", *writes, "big.py", "--lr", "1", cwd=here)
    assert ran.returncode == 1
    assert "OutOfMemoryError: CUDA out of memory. Tried to allocate 3.00 GiB." in ran.stderr
    assert ran.stderr.index("OutOfMemoryError") < ran.stderr.index(TABLE)
    report = json.loads((here / "out.json").read_text())
    assert report["command"] == ["big.py", "--lr", "1"]
    assert report["exit_status"] == 1
    snapshot = Snapshot.model_validate(report["snapshot"])
    assert snapshot.devices[0].memory.ooms == 1
    assert snapshot.devices[0].counters.h2d_bytes == 12
    events = json.loads((here / "time.json").read_text())["traceEvents"]  # up to where it ended
    assert [event["args"]["bytes"] for event in events if event["name"].startswith("Memcpy HtoD")] == [12]


def test_a_timeline_is_of_the_last_machine_until_it_was_switched_off(here: Path) -> None:
    (here / "script.py").write_text(
        "import torch, fakegpu_lab\n"
        "torch.ones(3, device='cuda') @ torch.ones(3, device='cuda')\n"
        "fakegpu_lab.reset()\n"
        "torch.ones(3).cuda()\n"
        "fakegpu_lab.disable()\n"
    )
    done = lab("run", "-q", "-d", "t4", "--chrome", "time.json.gz", "script.py", cwd=here)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    events = json.loads(gzip.decompress((here / "time.json.gz").read_bytes()))["traceEvents"]
    ran = [event for event in events if event.get("cat", "").startswith(("kernel", "gpu_memcpy"))]
    assert [event["name"].partition(" (")[0] for event in ran] == ["Memcpy HtoD"]


def test_settings_made_before_importing_torch_count(here: Path) -> None:
    (here / "conf.py").write_text(
        "import os\nos.environ['PYTORCH_CUDA_ALLOC_CONF'] = 'expandable_segments:True'\n"
        "import torch\nx = torch.empty(1, device='cuda')\nprint(torch.cuda.memory_snapshot()[0]['is_expandable'])\n"
    )
    assert lab("run", "conf.py", cwd=here).stdout == "True\n"


# --- as python would: these programs do not need torch, and so are quick ----------------------------------------


def test_a_script_sees_what_python_shows_it(here: Path) -> None:
    (here / "sub").mkdir()
    (here / "sub" / "helper.py").write_text("")
    (here / "sub" / "look.py").write_text(
        "import sys, helper, __main__\n"
        "print(sys.argv, sys.path[0], __name__, __file__, __package__, __spec__, __doc__)\n"
        "print(__main__.sys is sys, sorted(vars()))\n"
    )
    args = ["sub/look.py", "-d", "t4", "--help", "--report", "x", "-m"]
    python = subprocess.run([sys.executable, *args], cwd=here, capture_output=True, text=True, check=True)
    ran = lab("run", "-d", "a100", *args, cwd=here)
    assert ran.stdout == python.stdout
    assert ran.stderr.count(TABLE) == 1


def test_a_module_sees_what_python_shows_it(here: Path) -> None:
    (here / "tool").mkdir()
    (here / "tool" / "__init__.py").write_text("")
    (here / "tool" / "other.py").write_text("")
    (here / "tool" / "__main__.py").write_text(
        "import sys\nfrom . import other\n"
        "print(sys.argv, sys.path[0], __name__, __file__, __package__, __spec__.name)\n"
    )
    args = ["-m", "tool", "-d", "--report"]
    python = subprocess.run([sys.executable, *args], cwd=here, capture_output=True, text=True, check=True)
    assert lab("run", *args, cwd=here).stdout == python.stdout


@pytest.mark.parametrize(
    "source",
    [
        "def f():\n    return 1 / 0\n\nprint('before')\nf()\n",
        "try:\n    {}['x']\nexcept KeyError:\n    raise ValueError('second')\n",
        "print('never'\n",
        "import sys\nsys.exit(7)\n",
        "import sys\nsys.exit('a message')\n",
        "import sys\nsys.exit()\n",
        "import sys\nsys.excepthook = lambda *_: print('my hook')\nraise OSError\n",
        "import atexit, threading\natexit.register(print, 'last')\nthreading.Timer(0.1, print, ['late']).start()\n",
    ],
    ids=["raises", "chained", "syntax", "exit-7", "exit-message", "exit-none", "hook", "exit-handlers"],
)
def test_a_script_ends_as_under_python_and_then_comes_the_table(here: Path, source: str) -> None:
    (here / "script.py").write_text(source)
    python = subprocess.run([sys.executable, "script.py"], cwd=here, capture_output=True, text=True, check=False)
    ran = lab("run", "-d", "a100:2", "script.py", cwd=here)
    assert ran.returncode == python.returncode
    assert ran.stdout == python.stdout
    assert ran.stderr.startswith(python.stderr)
    assert ran.stderr.removeprefix(python.stderr).startswith("\nfakegpu-lab a100:2:")


@pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGINT to send to another process")
def test_ctrl_c_is_short_and_then_comes_the_table(here: Path) -> None:
    (here / "wait.py").write_text("import time\nprint('go', flush=True)\ntime.sleep(60)\n")
    command = [sys.executable, "-m", "fakegpu_lab", "run", "--report", "out.json", "wait.py"]
    with subprocess.Popen(
        command,
        cwd=here,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),  # a background job has none
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "go\n"
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert re.match(r"fakegpu-lab: interrupted in line [23] of wait.py\n\nfakegpu-lab a100:", said)
    assert json.loads((here / "out.json").read_text())["exit_status"] == 130


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_that_exits_prints_no_table(here: Path) -> None:
    (here / "fork.py").write_text("import os, sys\nif os.fork() == 0:\n    sys.exit(0)\nos.wait()\n")
    assert lab("run", "fork.py", cwd=here).stderr.count(TABLE) == 1


def test_quiet_prints_no_table_and_a_notebook_has_it_on_stdout(here: Path) -> None:
    (here / "script.py").write_text("print('hello')\n")
    quiet = lab("run", "-q", "script.py", cwd=here)
    assert (quiet.stdout, quiet.stderr) == ("hello\n", "")
    in_notebook = lab("run", "script.py", cwd=here, JPY_PARENT_PID="1")
    assert TABLE in in_notebook.stdout
    assert in_notebook.stderr == ""


def test_the_version_names_torch_and_python_too() -> None:
    ran = lab("--version")
    torch, python = metadata.version("torch"), ".".join(map(str, sys.version_info[:3]))
    assert ran.stdout == f"fakegpu-lab {metadata.version('fakegpu-lab')} (torch {torch}, Python {python})\n"
    assert (ran.returncode, ran.stderr) == (0, "")


# --- bad input ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        (["-d", "a101"], "the nearest of 130 GPUs and 11 nodes are 'a100', "),
        (["-d", "a1o0"], "No GPU or node is called 'a1o0': the nearest of"),
        (["-d", "a100:0"], "'a100:0' asks for 0 devices"),
        (["-d", "a100:10000"], "'a100:10000' asks for 10,000 devices"),
        (["-d", "a100:two"], "must be a whole number, not 'two'"),
        (["-d", "./broken.yaml"], "broken.yaml: line 2 is not valid YAML"),
        (["-d", "./list.yaml"], "list.yaml holds a list, not fields"),
        (["-d", "./field.yaml"], "field.yaml: memory"),
        (["-d", "./none.yaml"], "There is no file none.yaml"),
        (["--memory", "-2GiB"], "'-2GiB' is not above zero bytes"),
        (["--memory", "lots"], "'lots' is not a size"),
        (["--report", "no/such/folder.json"], "The report no/such/folder.json cannot be written"),
        (["--chrome", "no/such/folder.json"], "The timeline no/such/folder.json cannot be written"),
    ],
)
def test_a_bad_option_is_told_in_one_sentence(
    here: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    args: list[str],
    sentence: str,
) -> None:
    (here / "script.py").write_text("raise SystemExit('the script must not run')\n")
    (here / "broken.yaml").write_text("name: [unclosed\n")
    (here / "list.yaml").write_text("- a\n- b\n")
    (here / "field.yaml").write_text("based_on: a100\nmemory: -3 GiB\n")
    assert sentence in refused(capsys, monkeypatch, "run", *args, "script.py")


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        (["nope.py"], "There is no script nope.py in"),
        (["."], ". is a folder"),
        (["-m", "no_such_module"], "There is no module no_such_module to run"),
        (["-m", "no_such.module"], "The module no_such.module cannot be run"),
        (["-m", "json.tools.x"], "cannot be run"),
        (["-m", "email"], "email is a package without a __main__ module"),
    ],
)
def test_a_missing_program_is_told_in_one_sentence(
    here: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    args: list[str],
    sentence: str,
) -> None:
    assert sentence in refused(capsys, monkeypatch, "run", *args)


def test_click_refuses_the_rest_with_2(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    for args in (["run"], ["run", "--compute", "quantum", "x.py"], ["fly"]):
        monkeypatch.setattr(sys, "argv", ["fakegpu-lab", *args])
        with pytest.raises(SystemExit) as exit_:
            cli.main()
        assert exit_.value.code == 2
        assert "Error: " in capsys.readouterr().err


# --- the other commands -----------------------------------------------------------------------------------------


def test_help_needs_neither_torch_nor_pydantic() -> None:
    look = (
        "import sys\nfrom fakegpu_lab import cli\nsys.argv = ['fakegpu-lab', '--help']\n"
        "try:\n    cli.main()\nfinally:\n    print({'torch', 'pydantic', 'rich', 'yaml'} & set(sys.modules))\n"
    )
    ran = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True)
    assert "Usage: " in ran.stdout
    assert ran.stdout.endswith("set()\n")


def test_profiles_lists_what_matches(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["fakegpu-lab", "profiles", "dgx", "a100"])
    with pytest.raises(SystemExit):
        cli.main()
    assert "NVIDIA DGX A100" in capsys.readouterr().out
    monkeypatch.setattr(sys, "argv", ["fakegpu-lab", "profiles", "--json", "t4"])
    with pytest.raises(SystemExit):
        cli.main()
    found = json.loads(capsys.readouterr().out)
    assert "t4" in [card["id"] for card in found["gpus"]]
    assert "cloud-4xt4" in [node["id"] for node in found["nodes"]]
    assert "No GPU or node is called 'h1oo'" in refused(capsys, monkeypatch, "profiles", "h1oo")


def test_the_doctor_finds_this_environment_healthy() -> None:
    ran = lab("doctor")
    assert ran.returncode == 0, ran.stdout
    assert ran.stderr == ""
    assert "a backward pass leaves gradients on cuda:0" in ran.stdout
    assert sys.platform != "linux" or "triton" in ran.stdout
    assert ran.stdout.endswith("Simulated GPUs work here.\n")


def test_the_lessons_are_copied_once(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("jupyterlab")
    opened: list[list[str]] = []

    def call(command: list[str], env: dict[str, str]) -> int:
        opened.append(command)
        assert list(Path(env["JUPYTER_CONFIG_PATH"]).glob("labconfig/page_config.json"))
        return 0

    monkeypatch.setattr(subprocess, "call", call)
    tour = here / "mine" / "00-tour" / "00-tour.ipynb"
    for time in ("JupyterLab did not start", "the first time", "the second time"):
        if time == "the second time":
            tour.write_text("what a student wrote")
        monkeypatch.setattr(sys, "argv", ["fakegpu-lab", "lab", "--into", "mine", "--no-browser"])
        with pytest.raises(SystemExit) as exit_:
            cli.main()
        assert exit_.value.code == 0
        assert tour.exists()
    assert tour.read_text() == "what a student wrote"
    assert opened[0][1:3] == ["-m", "jupyterlab"]
    for first in opened[:2]:
        assert first[-3:] == ["--LabApp.default_url=/lab/tree/00-tour/00-tour.ipynb", "--no-browser", "mine"]
    assert opened[2][-3] == "--LabApp.default_url=/lab/tree/01-device-placement/01-device-placement.ipynb"
