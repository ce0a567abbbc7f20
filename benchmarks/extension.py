"""What JupyterLab's extension costs the browser: 10 messages a second of 16 devices and 8 ranks, then an hour of them.

    python benchmarks/extension.py            # both: some minutes
    python benchmarks/extension.py --quick    # ten seconds of each

A real JupyterLab in Chromium shows sidebar and dashboard. In the kernel, messages of the package's own models are made
up and sent through the telemetry comm: so all is measured that a person has, from the socket to the canvas. Needs
`make extension`, the extra `browser` and Chromium. Run it on a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import json
import os
import runpy
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
         "--disable-component-update", "--disable-sync", "--enable-precise-memory-info"]  # fmt: skip
DEVICES, RANKS = 16, 8

FEED = """
import threading, time
import fakegpu_lab, fakegpu_lab.notebook.telemetry.publisher
from fakegpu_lab.notebook.telemetry.messages import (
    CollectiveTotal, DeviceAllocations, Lane, Telemetry, Timeline)

fakegpu_lab.enable("a100:{devices}")
snapshots = fakegpu_lab.snapshot().devices
GIB = 1 << 30

def device(at, seq):
    held = (seq * 37 + at * 11) % 60 * GIB
    found = snapshots[at].model_dump(mode="json")
    found["memory"].update(allocated=held, reserved=held + GIB, free=78 * GIB - held)
    found["counters"].update(kernels=seq * 100, h2d_bytes=seq * 4096, collective_count=seq, collective_bytes=seq << 20)
    found["counters"]["p2p_sent_to"] = {{str((at + 1) % {devices}): seq * 512}}
    return found

def told(seq, kind="update"):
    now = seq * 100_000_000
    row = lambda at: (now, GIB, GIB, 2 * GIB, (seq * 37 + at) % 40 * GIB, 0, 0, 0, 64 * GIB)
    history = {{at: [row(at)] for at in range({devices})}}
    busy = {{at: (seq + at) % 10 / 10 for at in range({devices})}}
    timeline = Timeline(
        number=seq, title=f"Step {{seq}}", began_ns=now - 90_000_000, ended_ns=now,
        free_ns=now - 90_000_000,
        lanes=tuple(Lane(label=f"cuda:{{rank}} stream 0", bars=tuple(
            (now - 90_000_000 + n * 1_400_000, now - 90_000_000 + n * 1_400_000 + 900_000, "matmul", "aten::mm")
            for n in range(62))) for rank in range({ranks})),
        top=((0, "aten::mm", 62, 55_800_000),),
    ) if seq % 10 == 1 else None
    allocations = tuple(DeviceAllocations(
        slot=at, title=f"Step {{seq}}", said="", peak=26 * GIB, peak_step=39, steps=80, columns=tuple(range(80)),
        bands=tuple(("activations", 1, GIB, "1024×1024 float32", "aten::mm", "Net", "forward", 1000, (0, 1),
            ((n, GIB), (79 - n, -GIB))) for n in range(26)),
        lines=("In[1], line 5  y = net(x)", "In[1], line 9  step()"), phases=(("forward", 1, 40), ("backward", 40, 80)),
        modules=(("Net", 1, 40),), groups=((26 * GIB, 26, "activations", "1024×1024 float32", "mm", "In[1], line 5"),),
    ) for at in range({devices})) if seq % 10 == 1 else None
    collectives = (CollectiveTotal(operation="all_reduce", group="0", ranks=tuple(range({ranks})), count=seq,
        nbytes=seq << 20, ns=seq * 1000, bus_bandwidth=2e11, waited_ns={{r: seq * 10 * r for r in range({ranks})}}),)
    message = Telemetry.model_construct(kind=kind, seq=seq, epoch=1, enabled=True, note="", spec="a100:{devices}",
        compute="real", now_ns=now, busy=True, devices=(), utilisation=busy,
        history=history, steps=((now, seq),), timeline=timeline,
        allocations=allocations, collectives=collectives, error=None, advice=None)
    return {{**message.model_dump(mode="json"), "devices": [device(at, seq) for at in range({devices})]}}

acked = 0

def opened(comm, message):
    def run():
        comm.send(told(1, "state"))
        for phase, hertz, many in {phases}:
            began = time.monotonic()
            first = opened.seq
            while opened.seq - first < many:
                while opened.seq - acked > 8:
                    time.sleep(0.002)
                opened.seq += 1
                comm.send(told(opened.seq))
                ahead = began + (opened.seq - first) / hertz - time.monotonic()
                if ahead > 0:
                    time.sleep(ahead)
        comm.send({{**told(opened.seq + 1), "busy": False}})
    opened.seq = 1
    threading.Thread(target=run, daemon=True).start()

def heard(comm, message):
    def said(message):
        global acked
        acked = max(acked, message["content"]["data"].get("ack", 0))
    comm.on_msg(said)

manager = get_ipython().kernel.comm_manager
manager.register_target("fakegpu_lab.telemetry", opened)
manager.register_target("fakegpu_lab.control", heard)
"""

WATCH = """() => {
  window.frames_ = []; window.long_ = [];
  new PerformanceObserver(found => found.getEntries().forEach(one => window.long_.push(one.duration)))
    .observe({type: 'longtask'});
  let last = performance.now();
  const next = now => { window.frames_.push(now - last); last = now; requestAnimationFrame(next); };
  requestAnimationFrame(next);
}"""


def serve(folder: Path) -> tuple[subprocess.Popen[bytes], str]:
    """Start JupyterLab with the extension on a folder."""
    built = ROOT / "labextension" / "built"
    if not runpy.run_path(str(ROOT / "labextension" / "build.py"))["fresh"]():
        raise SystemExit("JupyterLab's extension is not built of the present sources: make extension builds it.")
    shutil.copytree(built, folder / "data/labextensions/fakegpu-lab")
    (folder / "shown").mkdir()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{free.getsockname()[1]}"
    variables = {f"JUPYTER_{kind}_DIR": str(folder / kind.lower()) for kind in ("CONFIG", "DATA", "RUNTIME")}
    variables["JUPYTER_PREFER_ENV_PATH"] = "0"  # an extension installed beside this Python may be an older one
    variables["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    options = ["--no-browser", "--allow-root", "--ip=127.0.0.1", f"--port={address.rpartition(':')[2]}",
               "--IdentityProvider.token=bench", "--LabApp.expose_app_in_browser=True"]  # fmt: skip
    command = [sys.executable, "-m", "jupyterlab", *options, str(folder / "shown")]
    process = subprocess.Popen(
        command, env=os.environ | variables, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    until = time.monotonic() + 120
    while True:
        try:
            with urllib.request.urlopen(f"{address}/api?token=bench", timeout=5):
                return process, address
        except OSError:
            if process.poll() is not None or time.monotonic() > until:
                raise SystemExit("JupyterLab did not start.") from None
            time.sleep(0.2)


def heap(session: Any) -> float:
    """MiB that the page's objects hold, after a collection."""
    session.send("HeapProfiler.collectGarbage")
    return float(session.send("Runtime.getHeapUsage")["usedSize"]) / 2**20


def processor() -> list[int]:
    """What the processors did since the start, by kind of work; nothing where it is not told."""
    try:
        return [int(part) for part in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    except OSError:
        return []


def measure(seconds: float, hour: int, hertz: float) -> None:
    """Show it in a browser, and print what it took."""
    from playwright.sync_api import sync_playwright

    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))))
    phases = [("live", 10, round(seconds * 10)), ("hour", hertz, hour)]
    feed = FEED.format(devices=DEVICES, ranks=RANKS, phases=json.dumps(phases))
    cell = {"cell_type": "code", "id": "feed", "metadata": {}, "execution_count": None, "outputs": [], "source": feed}
    spec = {"name": "python3", "display_name": "Python 3", "language": "python"}
    notebook = {"cells": [cell], "metadata": {"kernelspec": spec}, "nbformat": 4, "nbformat_minor": 5}
    with tempfile.TemporaryDirectory() as temporary, sync_playwright() as playwright:
        process, address = serve(Path(temporary))
        try:
            (Path(temporary) / "shown/feed.ipynb").write_text(json.dumps(notebook), encoding="utf-8")
            page = playwright.chromium.launch(executable_path=program, args=FLAGS).new_page(
                viewport={"width": 1600, "height": 1000}
            )
            page.set_default_timeout(180_000)
            page.goto(f"{address}/lab?token=bench")
            page.wait_for_function("window.jupyterapp && window.jupyterapp.restored")
            page.evaluate("void window.jupyterapp.commands.execute('docmanager:open', {path: 'feed.ipynb'})")
            page.wait_for_function(
                "window.jupyterapp.shell.currentWidget?.sessionContext?.session?.kernel?.status === 'idle'"
            )
            page.evaluate("void window.jupyterapp.commands.execute('fakegpu-lab:show-gpus')")
            page.evaluate("void window.jupyterapp.commands.execute('notebook:run-cell')")
            page.wait_for_selector(".fg-Card >> nth=15")
            page.evaluate("void window.jupyterapp.commands.execute('fakegpu-lab:show-dashboard', {slot: -1})")
            page.wait_for_selector(".fg-Dashboard [data-part=memory] canvas")
            session = page.context.new_cdp_session(page)
            session.send("HeapProfiler.enable")
            page.wait_for_timeout(2000)
            page.evaluate(WATCH)
            before = processor()
            page.wait_for_timeout(1000 * (seconds - 4))
            frames = sorted(page.evaluate("window.frames_"))
            long = page.evaluate("window.long_")
            middle, late = frames[len(frames) // 2], frames[int(len(frames) * 0.99)]
            print(f"{DEVICES} devices, {RANKS} ranks, 10 messages a second, {seconds - 4:.0f} s:")
            print(f"  frames: {len(frames)}; median {middle:.1f} ms, 99% below {late:.1f} ms")
            print(f"  long tasks (over 50 ms): {len(long)}{f', the longest {max(long):.0f} ms' if long else ''}")
            spent = [after - began for began, after in zip(before, processor(), strict=True)]
            if spent:  # a virtual machine that is not given its processors is late with all that it does
                print(f"  taken from this machine by its host: {spent[7] / sum(spent):.2%} of the processors' time")
            page.wait_for_timeout(4000)
            print(
                f"{hour:,} messages more ({hour / 36000:.2f} hours at 10 a second), as fast as it is drawn; heap, MiB:"
            )
            began = time.monotonic()
            script = "document.querySelector('.fg-Dashboard .fg-Busy').textContent"
            held = []
            while True:
                text = page.evaluate(script)
                held.append(heap(session))
                print(f"  {time.monotonic() - began:5.0f} s  {held[-1]:7.1f}  (simulated {text})", flush=True)
                if "running" not in text:
                    break
                page.wait_for_timeout(5000)
            half = held[len(held) // 2 :]
            print(f"  second half: from {min(half):.1f} to {max(half):.1f} MiB")
        finally:
            process.terminate()
            process.wait(30)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="ten seconds of each")
    parser.add_argument("--messages", type=int, default=36_000, help="of the second part; 36,000 are an hour")
    asked = parser.parse_args()
    if asked.quick:
        measure(14, 2_000, 200)
    else:
        measure(34, asked.messages, 400)
