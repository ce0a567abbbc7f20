"""The commands of docs/hub.md, run as they are printed, by whom they say."""

from __future__ import annotations

import pwd
import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "hub.md"

_BLOCK = re.compile(r"```sh\n# as (?P<user>\w+): (?P<what>[^\n]+)\n(?P<commands>.*?)```", re.DOTALL)


def commands() -> dict[str, tuple[str, str]]:
    """What each block is for, with its user and its commands."""
    return {block["what"]: (block["user"], block["commands"]) for block in _BLOCK.finditer(PAGE.read_text("utf-8"))}


def run_as(user: str, script: str, environment: dict[str, str]) -> str:
    """Run a script as a user, in their home, and return what it printed; it must succeed."""
    home = pwd.getpwnam(user).pw_dir
    settings = [f"{name}={value}" for name, value in (environment | {"HOME": home, "USER": user}).items()]
    command = ["runuser", "--user", user, "--", "env", "--ignore-environment", *settings, "bash", "-e", "-c", script]
    done = subprocess.run(command, cwd=home, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{user}: {script}\n{done.stdout}\n{done.stderr}"
    return done.stdout + done.stderr
