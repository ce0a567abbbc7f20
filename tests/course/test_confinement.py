"""How a submission's process is kept to itself, for whoever grades."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from fakegpu_lab.course.grade.sandbox import bubblewrap, confine, hidden
from fakegpu_lab.course.grade.sandbox.limits import Limits
from fakegpu_lab.course.grade.sandbox.process import Sandbox

if TYPE_CHECKING:
    from collections.abc import Callable

NOBODY, PR_SET_DUMPABLE = 65534, 4
SETTINGS = {"in_force": [], "namespaces": True, "hide": [], "others": [], "needed": []}


@pytest.fixture(params=["bubblewrap", "namespaces"])
def confined(request: pytest.FixtureRequest) -> Callable[[list[str]], Sandbox]:
    """Makes a submission's process that is confined in one of the two ways, and sees none of the paths given."""
    if sys.platform != "linux":
        pytest.skip("both are Linux's")
    if request.param == "bubblewrap" and bubblewrap._working() is None:
        pytest.skip("bubblewrap is not installed, or may not do its work here")

    def made(hide: list[str]) -> Sandbox:
        return Sandbox({}, Limits(), hide, bubblewrap=request.param == "bubblewrap")

    return made


def printed(sandbox: Sandbox, source: str) -> list[str]:
    """The lines that a cell prints."""
    with sandbox:
        if "a file system of its own" not in sandbox.in_force:
            pytest.skip("this system lets nobody make namespaces")
        told = sandbox.run({"id": "look", "kind": "student", "source": source, "visible": source})
    return "".join(one.get("text", str(one)) for one in told["outputs"]).splitlines()


@pytest.mark.skipif(sys.platform != "linux", reason="namespaces are Linux's")
def test_an_ordinary_user_s_submissions_are_isolated_like_root_s() -> None:
    """Of a process that is not dumpable, the files in /proc belong to root: it must isolate itself before."""
    with tempfile.TemporaryDirectory() as around:
        folder = Path(around) / "submission"
        folder.mkdir()
        for path in (Path(around), folder):
            path.chmod(0o777)
        answer, told = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                if os.geteuid() == 0:
                    os.setgroups([])
                    os.setresgid(NOBODY, NOBODY, NOBODY)
                    os.setresuid(NOBODY, NOBODY, NOBODY)
                    confine._prctl(PR_SET_DUMPABLE, 1)  # as after a login
                in_force = confine.isolate(SETTINGS | {"folder": str(folder)}, io.BytesIO())
                os.write(told, json.dumps(in_force).encode())
            except OSError as error:
                os.write(told, json.dumps(str(error)).encode())
            finally:
                os._exit(0)
        os.close(told)
        with os.fdopen(answer) as pipe:
            in_force = json.loads(pipe.read())
        os.waitpid(child, 0)
    if in_force == []:
        pytest.skip("this system lets ordinary users make no namespaces")
    assert in_force == ["processes of its own", "no network", "a file system of its own"]


def test_keys_and_passwords_at_home_are_out_of_sight(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, confined: Callable[[list[str]], Sandbox]
) -> None:
    """A cell that prints them would have them on the page that the student gets."""
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh" / "id_ed25519").write_text("a key")
    (tmp_path / "work" / "lib").mkdir(parents=True)
    (tmp_path / "work" / "lib" / "of_mine.py").write_text("value = 3")
    (tmp_path / "work" / "lib.zip").touch()
    (tmp_path / "work" / "grades.csv").write_text("ada,10")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path / "work" / "lib"), str(tmp_path / "work" / "lib.zip")])
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    look = f"""
import os, of_mine
print(of_mine.value, os.path.exists(of_mine.__file__))
print(sorted(os.listdir({str(tmp_path)!r})), sorted(os.listdir({str(tmp_path / "work")!r})))
open("mine.txt", "w").write("mine")
print(open("mine.txt").read(), sorted(os.listdir(os.path.dirname(os.getcwd()))))
try:
    open(of_mine.__file__, "a")
except OSError as error:
    print(error.strerror)
"""
    assert printed(confined([]), look) == [
        "3 True",
        "['tmp', 'work'] ['lib', 'lib.zip']",
        "mine ['submission']",
        "Read-only file system",
    ]


def test_what_others_have_is_out_of_sight_whatever_its_mode(confined: Callable[[list[str]], Sandbox]) -> None:
    """An exchange or a shared folder lies anywhere, and anybody may read it."""
    if os.geteuid() != 0:
        pytest.skip("only root may make a folder in /srv")
    with tempfile.TemporaryDirectory(dir="/srv") as exchange, tempfile.TemporaryDirectory(dir="/var/tmp") as shared:
        for folder in map(Path, (exchange, shared)):
            folder.chmod(0o777)
            (folder / "bob.ipynb").write_text("bob's answers")
            (folder / "bob.ipynb").chmod(0o666)
        look = f"""
import os, torch, pathlib
for path in ({exchange!r}, {shared!r}, "/home", os.path.expanduser("~/.ssh"), "/mnt"):
    print(os.path.exists(path) and os.listdir(path))
print(torch.ones(2).sum().item(), pathlib.Path("/etc/passwd").exists(), os.path.exists(os.sys.executable))
"""
        lines = printed(confined([]), look)
    assert set(lines[:5]) <= {"False", "[]"}, lines
    assert lines[5] == "2.0 True True"


def test_a_submission_is_alone_and_can_write_nowhere_else(confined: Callable[[list[str]], Sandbox]) -> None:
    """What is to be hidden lies inside of the package's folder here, which a submission sees."""
    course = Path(hidden.__file__).parents[3] / "sidebar"
    file = course.parent / "pytest_plugin.py"
    look = f"""
import os, socket
print(os.listdir({str(course)!r}), os.path.getsize({str(file)!r}))
print(len([one for one in os.listdir("/proc") if one.isdigit()]) < 5, os.path.isdir("/dev/shm"))
for path in ("/mine", "/tmp/mine", "/usr/mine", {str(course / "mine")!r}, "/dev/shm/mine"):
    try:
        open(path, "w").write("mine")
        print(path)
    except OSError:
        print("refused")
a, b = socket.socket(), socket.socket()
a.bind(("127.0.0.1", 0)); a.listen(1); b.connect(a.getsockname())
try:
    socket.create_connection(("192.0.2.1", 80), timeout=2)
except OSError as error:
    print(error.strerror)
"""
    lines = printed(confined([str(course), str(course / "answers.py"), str(file)]), look)
    assert lines == ["[] 0", "True True", *["refused"] * 4, "/dev/shm/mine", "Network is unreachable"]


@pytest.mark.skipif(sys.platform != "linux", reason="namespaces are Linux's")
def test_neither_the_current_folder_nor_a_checkout_is_in_sight(tmp_path: Path) -> None:
    """``python -m`` puts the current folder on the path of imports; grades and earlier submissions lie there."""
    (tmp_path / "earlier").mkdir()
    (tmp_path / "earlier" / "bob.ipynb").write_text("bob's answers")
    root = Path(hidden.__file__).resolve().parents[4]
    program = f"""
import sys
sys.path.insert(0, {str(tmp_path)!r})
from fakegpu_lab.course.grade.sandbox import hidden
print(*hidden.needed(), sep="\\n")
"""
    environment = {**os.environ, "PYTHONPATH": str(root)}
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    needed = {Path(line) for line in done.stdout.splitlines()}
    assert root / "fakegpu_lab" in needed or root.name == "site-packages"
    for secret in (tmp_path / "earlier", root / "lessons" / "source"):
        assert not {secret, *secret.parents} & needed
