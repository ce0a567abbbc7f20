"""The commands of docs/hub.md, run as they are printed, by whom they say."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "hub.md"

_BLOCK = re.compile(r"```sh\n# as (?P<user>\w+): (?P<what>[^\n]+)\n(?P<commands>.*?)```", re.DOTALL)


def commands() -> dict[str, tuple[str, str]]:
    """What each block is for, with its user and its commands."""
    return {block["what"]: (block["user"], block["commands"]) for block in _BLOCK.finditer(PAGE.read_text("utf-8"))}


def printed() -> list[str]:
    """The first lines of all blocks of commands on the page."""
    return re.findall(r"```sh\n(.*)\n", PAGE.read_text("utf-8"))


def shell(user: str, script: str, environment: dict[str, str]) -> list[str]:
    """The command that runs a script in a user's login shell, with what only the test needs in its environment."""
    exports = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in environment.items())
    return ["runuser", "--login", user, "--shell", "/bin/bash", "--command", f"set -e\n{exports}{script}"]


def run_as(user: str, script: str, environment: dict[str, str]) -> str:
    """Run a script as a user, in their home, and return what it printed; it must succeed."""
    done = subprocess.run(shell(user, script, environment), capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{user}: {script}\n{done.stdout}\n{done.stderr}"
    return done.stdout + done.stderr
