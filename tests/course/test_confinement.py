"""How a submission's process is kept to itself, for whoever grades."""

from __future__ import annotations

import io
import json
import os
import sys
import tempfile
from pathlib import Path

import pytest

from fakegpu_lab.course.grade.sandbox import confine

NOBODY, PR_SET_DUMPABLE = 65534, 4


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
                in_force = confine.isolate({"namespaces": True, "folder": str(folder), "hide": []}, io.BytesIO())
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
