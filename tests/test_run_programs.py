"""How a program is named for ``fakegpu-lab run``, and how SIGTERM ends it."""

from __future__ import annotations

import ast
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.test_cli import TABLE, lab, refused


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


SAYS = "import sys\nprint(sys.argv, __name__)\n"


@pytest.mark.parametrize(
    ("command", "argv"),
    [
        (("python", "says.py", "-v"), ["says.py", "-v"]),
        (("python3", "says.py"), ["says.py"]),
        ((sys.executable, "says.py"), ["says.py"]),
        (("python", "-c", SAYS, "-v"), ["-c", "-v"]),
        (("-c", SAYS, "-v"), ["-c", "-v"]),
        (("-", "-v"), ["-", "-v"]),
        (("python", "-"), ["-"]),
        (("-m", "package", "-v"), ["__main__.py", "-v"]),
        (("python", "-m", "package"), ["__main__.py"]),
    ],
)
def test_a_program_is_named_as_for_python(here: Path, command: tuple[str, ...], argv: list[str]) -> None:
    (here / "package").mkdir()
    for path in ("says.py", "package/__main__.py", "package/__init__.py"):
        (here / path).write_text(SAYS if not path.endswith("__init__.py") else "")
    ran = lab("run", "-q", *command, stdin=SAYS)
    assert ran.stderr == ""
    said, _, rest = ran.stdout.partition("] ")
    assert rest == "__main__\n"
    found = ast.literal_eval(said + "]")
    assert [Path(found[0]).name if "." in found[0] else found[0], *found[1:]] == argv


def test_a_program_by_any_name_has_the_gpus(here: Path) -> None:
    (here / "says.py").write_text("import torch\nprint(torch.ones(1, device='cuda').device)\n")
    for command in (("says.py",), ("-m", "says")):
        assert lab("run", "-q", *command).stdout == "cuda:0\n"


def test_code_on_the_command_line_sees_what_python_would_give_it(here: Path) -> None:
    (here / "beside.py").write_text("VALUE = 3\n")
    code = "import beside, sys; print(beside.VALUE, repr(sys.path[0]), '__file__' in globals(), __spec__)"
    ran = lab("run", "-q", "-c", code)
    expected = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == expected.stdout
    assert lab("run", "-q", "-c", "1 / 0").returncode == 1


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        (("python",), "python alone would open a prompt: name a script, as in fakegpu-lab run python train.py."),
        (("python", "-u", "-X", "dev", "a.py"), "Type this instead: python -u -X dev -m fakegpu_lab run -d a100 a.py"),
        (("python2.7", "a.py"), "python2.7 is not the Python that runs fakegpu-lab"),
        (("/elsewhere/python3", "a.py"), "/elsewhere/python3 is not the Python that runs fakegpu-lab"),
        (("-m", "-c", "pass"), "-m runs a module, -c runs code: choose one of them."),
    ],
)
def test_what_cannot_be_run_is_said(
    here: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    command: tuple[str, ...],
    sentence: str,
) -> None:
    assert sentence in refused(capsys, monkeypatch, "run", "-d", "a100", *command)


READS_THE_HANDLER = """
assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
assert signal.signal(signal.SIGTERM, signal.SIG_DFL) is signal.SIG_DFL
"""
HAS_A_HANDLER = """
signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
"""
WAITS = """
torch.ones(1 << 20, device="cuda")
try:
    print("ready", flush=True)
    time.sleep(60)
finally:
    print("cleaned up")
"""


@pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGTERM")
@pytest.mark.parametrize(
    ("before", "status", "said"),
    [(READS_THE_HANDLER, -signal.SIGTERM, ""), (HAS_A_HANDLER, 7, "cleaned up\n")],
    ids=["by default", "with a handler"],
)
def test_sigterm_ends_a_program_after_its_table(here: Path, before: str, status: int, said: str) -> None:
    (here / "waits.py").write_text(f"import signal, sys, time, torch\n{before}{WAITS}")
    command = [sys.executable, "-m", "fakegpu_lab", "run", "--report", "out.json", "waits.py"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as ran:
        assert ran.stdout is not None
        assert ran.stdout.readline() == "ready\n"
        ran.terminate()
        out, err = ran.communicate(timeout=60)
    assert (ran.returncode, out) == (status, said)
    assert err.count(TABLE) == 1
    assert "4.00 MiB" in err
    assert json.loads((here / "out.json").read_text())["exit_status"] == (143 if status < 0 else status)
