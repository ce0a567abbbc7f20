"""Build what Binder builds, here: a clean clone in a clean environment; open each lesson; tell size, time and memory.

    python binder/local.py                  # in a temporary folder, which is deleted afterwards
    python binder/local.py --keep ~/binder  # in this one, which stays

Everything comes from `requirements.txt` and `postBuild` beside this file, as repo2docker would take it. Only committed
files count, and nobody's own settings of Jupyter. Memory is the sum over JupyterLab's server and one kernel, in which a
lesson has run as far as its first unsolved exercise: what Binder's limit of 1 GiB is about. JupyterLab must come with
the sidebar and, where bash can run `postBuild`, without its news.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import secrets
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
LIMIT = 2**30
NEWS = "@jupyterlab/apputils-extension:announcements"
RUN = """
import json, os, sys, time
import nbformat, psutil
from jupyter_client.manager import start_new_kernel

path, server = sys.argv[1], int(sys.argv[2])
os.chdir(os.path.dirname(path))
os.environ["FAKEGPU_LAB_PROGRESS"] = "off"
held = lambda process: sum(p.memory_info().rss for p in [process, *process.children(recursive=True)])
began = time.perf_counter()
manager, client = start_new_kernel(kernel_name="python3")
kernel, most, ran, first = psutil.Process(manager.provisioner.pid), 0, 0, None
cells = [cell for cell in nbformat.read(path, 4).cells if cell.cell_type == "code"]
for cell in cells:
    reply = client.execute_interactive(cell.source, timeout=300, output_hook=lambda message: None)
    first = first or time.perf_counter() - began
    most = max(most, held(kernel))
    if reply["content"]["status"] != "ok" and "raises-exception" not in cell.metadata.get("tags", []):
        break
    ran += 1
client.stop_channels()
manager.shutdown_kernel(now=True)
seconds = time.perf_counter() - began
print(json.dumps([ran, len(cells), first, seconds, most + held(psutil.Process(server))]))
"""


def size(folder: Path) -> int:
    """Bytes of all files in a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file() and not path.is_symlink())


def visitor(folder: Path) -> dict[str, str]:
    """Environment variables with which Jupyter has none but the settings that are made here."""
    kinds = ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR")
    return {**os.environ, **{kind: str(folder / "visitor" / kind.lower()) for kind in kinds}}


def build(folder: Path, python: str) -> tuple[Path, Path]:
    """Clone, make the environment, install; return the clone and the environment's Python."""
    clone, environment = folder / "clone", folder / "environment"
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
    subprocess.run([python, "-m", "venv", str(environment)], check=True)
    scripts = environment / ("Scripts" if os.name == "nt" else "bin")
    pip = [str(scripts / "python"), "-m", "pip", "--disable-pip-version-check", "install", "-qq", "--no-cache-dir"]
    pinned = [*pip, "--constraint", "constraints.txt"]
    # The plain name, where pip finds the CPU build; else as repo2docker would.
    found = subprocess.run([*pinned, "torch"], cwd=clone, capture_output=True, check=False).returncode == 0
    install = [*pinned, ".[lab]"] if found else [*pip, "--requirement", "binder/requirements.txt"]
    subprocess.run(install, cwd=clone, check=True)
    if os.name == "posix":
        path = os.pathsep.join([str(scripts), os.environ.get("PATH", "")])
        after = subprocess.run(
            ["bash", "binder/postBuild"], cwd=clone, env={**visitor(folder), "PATH": path},
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
        )  # fmt: skip
        if after.returncode:  # else nobody wants Jupyter's tips
            raise SystemExit(f"binder/postBuild ended with {after.returncode}:\n{after.stdout}")
    return clone, scripts / "python"


def serve(python: Path, clone: Path) -> tuple[subprocess.Popen[bytes], float, dict[str, Any]]:
    """Start JupyterLab, and return its process, the seconds until it answered, and what it tells its page."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    token = secrets.token_hex(8)
    options = ["--no-browser", "--ip=127.0.0.1", f"--port={port}", f"--IdentityProvider.token={token}", "--allow-root"]
    began = time.perf_counter()
    command, quiet = [str(python), "-m", "jupyterlab", *options], subprocess.DEVNULL
    server = subprocess.Popen(command, cwd=clone, env=visitor(clone.parent), stdout=quiet, stderr=quiet)
    address = f"http://127.0.0.1:{port}/lab/tree/lessons/release/00-tour/00-tour.ipynb?token={token}"
    while True:
        try:
            with urllib.request.urlopen(address, timeout=5) as page:
                seconds, text = time.perf_counter() - began, page.read().decode()
            told = re.search(r'<script id="jupyter-config-data"[^>]*>(.*?)</script>', text, re.DOTALL)
            return server, seconds, json.loads(told[1]) if told else {}
        except OSError:
            if server.poll() is not None or time.perf_counter() - began > 120:
                raise SystemExit("JupyterLab did not start.") from None
            time.sleep(0.2)


def main() -> int:
    """Build, open every lesson, and print what it takes; 1 if that is too much, or something is missing."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--keep", metavar="FOLDER", help="build here, and leave it")
    parser.add_argument("--python", default=sys.executable, help="the Python to make the environment with")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(asked.keep or temporary).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        began = time.perf_counter()
        clone, python = build(folder, asked.python)
        took = time.perf_counter() - began
        print(f"environment: {size(folder / 'environment') / 2**20:,.0f} MiB, built in {took:.0f} s")
        server, seconds, told = serve(python, clone)
        sidebar = "fakegpu-lab" in [one["name"] for one in told.get("federated_extensions", [])]
        news = NEWS not in told.get("disabledExtensions", [])
        extras = f"{'with' if sidebar else 'WITHOUT'} the sidebar, {'WITH' if news else 'without'} its news"
        print(f"JupyterLab answers after {seconds:.1f} s, {extras}")
        worst = 0
        print(f"{'lesson':28} {'cells run':>10} {'first cell':>11} {'in all':>8} {'memory':>9}")
        try:
            for path in sorted(clone.glob("lessons/release/*/*.ipynb")):
                command = [str(python), "-c", RUN, str(path), str(server.pid)]
                done = subprocess.run(command, env=visitor(folder), capture_output=True, text=True, check=True)
                ran, cells, first, took, held = json.loads(done.stdout.splitlines()[-1])
                worst = max(worst, held)
                print(f"{path.stem:28} {f'{ran} of {cells}':>10} {first:9.1f} s {took:6.1f} s {held / 2**20:5,.0f} MiB")
        finally:
            server.terminate()
            server.wait()
    print(f"most: {worst / 2**20:,.0f} MiB of the 1,024 MiB that Binder gives")
    return int(worst > LIMIT or not sidebar or (news and os.name == "posix"))


if __name__ == "__main__":
    sys.exit(main())
