"""A file that is broken, hostile or something else ends in one sentence that says what it is; nothing is executed."""

from __future__ import annotations

import gzip
import json
import os
import pickle
import pickletools
import sqlite3
import struct
import zipfile
from typing import TYPE_CHECKING, Any

import pytest

import fakegpu_lab as lab
from fakegpu_lab.opened import content

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Make = Callable[[Path], Path]

KERNEL = {
    "ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": 10.0, "dur": 5.0,
    "args": {"device": 0, "stream": 7, "correlation": 1},
}  # fmt: skip
CALL = {
    "ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1, "ts": 4.0, "dur": 2.0,
    "args": {"correlation": 1},
}  # fmt: skip
OP = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 2.0, "dur": 6.0, "args": {}}
CARD = {"id": 0, "name": "NVIDIA A100-SXM4-80GB"}


def trace(*events: Any, **head: Any) -> dict[str, Any]:
    return {"schemaVersion": 1, "deviceProperties": [CARD], "traceEvents": list(events), **head}


def file(name: str, data: Any) -> Make:
    """What makes a file: of bytes, of a text, or of something that becomes JSON."""

    def make(folder: Path) -> Path:
        raw = data() if callable(data) else data
        raw = raw if isinstance(raw, (bytes, str)) else json.dumps(raw)
        raw = raw if isinstance(raw, bytes) else raw.encode()
        path = folder / name
        path.write_bytes(gzip.compress(raw, mtime=0) if name.endswith(".gz") else raw)
        return path

    return make


def changed(event: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {key: value for key, value in (event | fields).items() if value is not ...}


def arguments(event: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return event | {"args": event["args"] | fields}


def cut(folder: Path) -> Path:
    path = file("cut.json.gz", trace(KERNEL, CALL, OP))(folder)
    path.write_bytes(path.read_bytes()[:-30])
    return path


def flipped(folder: Path) -> Path:
    path = file("flipped.json.gz", trace(*[KERNEL] * 50))(folder)
    data = bytearray(path.read_bytes())
    data[20:60] = bytes(40)
    path.write_bytes(data)
    return path


def bomb(folder: Path) -> Path:
    return file("bomb.json.gz", lambda: b'{"traceEvents": [' + b" " * (100 * 2**20))(folder)


def database(folder: Path) -> Path:
    connection = sqlite3.connect(folder / "report.sqlite")
    connection.execute("create table CUPTI_ACTIVITY_KIND_KERNEL (start integer)")
    connection.commit()
    connection.close()
    return folder / "report.sqlite"


def archive(folder: Path) -> Path:
    with zipfile.ZipFile(folder / "model.pt", "w") as made:
        made.writestr("data.pkl", b"")
    return folder / "model.pt"


def pipe(folder: Path) -> Path:
    os.mkfifo(folder / "pipe.json")
    return folder / "pipe.json"


def sub_folder(folder: Path) -> Path:
    (folder / "empty").mkdir()
    return folder / "empty"


class Runs:
    """Unpickling it would run a command."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, ("touch executed",)


NAN = json.dumps(trace(KERNEL)).replace("5.0", "NaN")
INFINITE = json.dumps(trace(KERNEL)).replace("5.0", "-Infinity")
SNAPSHOT = {"segments": [], "device_traces": [[]]}
SEGMENT = {
    "device": 0, "address": 0, "total_size": 1024, "allocated_size": 512, "active_size": 512, "stream": 0,
    "blocks": [{"size": 512, "state": "active_allocated"}, {"size": 512, "state": "inactive"}],
}  # fmt: skip
PROTO, STOP = b"\x80\x04", b"."

BROKEN: dict[str, tuple[Make, str]] = {
    # the file
    "missing": (lambda folder: folder / "no.json", "There is no file"),
    "empty": (file("empty.json", b""), "is empty"),
    "empty gzip": (file("empty.json.gz", b""), "is empty"),
    "folder": (sub_folder, "a folder without a .json"),
    "pipe": (pipe, "not a regular file"),
    "truncated gzip": (cut, "ends in the middle of its compressed data"),
    "damaged gzip": (flipped, "compressed data is damaged"),
    "gzip bomb": (bomb, "expands to more than"),
    "text": (file("notes.json", "hello"), "is not JSON"),
    "binary": (file("noise.json", bytes(range(256))), "is not JSON"),
    "sqlite": (database, "as Nsight Systems exports it"),
    "nsight": (file("report.nsys-rep", b"NVDA"), "a report of NVIDIA Nsight"),
    "zip": (archive, "a zip archive"),
    "html": (file("page.json", "<html></html>"), "a page of HTML"),
    # JSON
    "half a JSON": (file("half.json", json.dumps(trace(KERNEL))[:-20]), "not valid JSON"),
    "two JSONs": (file("lines.json", '{"Type": 1}\n{"Type": 2}'), "not valid JSON"),
    "NaN": (file("nan.json", NAN), "it has NaN where JSON needs a number"),
    "Infinity": (file("inf.json", INFINITE), "it has -Infinity where JSON needs a number"),
    "a million brackets": (file("deep.json", b'{"traceEvents": ' + b"[" * 1_000_000), "cannot be read"),
    "a million closed brackets": (
        file("deep.json", b'{"a": ' + b"[" * 1_000_000 + b"]" * 1_000_000 + b', "traceEvents": []}'),
        "nested too",
    ),
    "a deep event": (
        file("deep.json", '{"traceEvents": [{"ph": "X", "args": ' + '{"a": ' * 100_000 + "1" + "}" * 100_000 + "}]}"),
        "nested too deeply",
    ),
    "not UTF-8": (file("latin.json", b'{"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "\xff"}]}'), "cannot be"),
    "a number": (file("one.json", "1"), "is not JSON"),
    "an empty list": (file("none.json", "[]"), "it has no traceEvents"),
    "another JSON": (file("data.json", {"a": 1}), "it has no traceEvents"),
    "no events": (file("none.json", trace()), "it has no traceEvents"),
    "events that are a text": (file("text.json", {"traceEvents": "many"}), "are not a list of events"),
    "events that are numbers": (file("numbers.json", {"traceEvents": [1, 2]}), "torch.profiler"),
    "an execution trace": (file("et.json", {"schema": "1.0.1", "nodes": [{}]}), "an execution trace"),
    # events
    "no duration": (file("t.json", trace(changed(KERNEL, dur=...))), "event 0 has no duration"),
    "negative duration": (file("t.json", trace(OP, changed(KERNEL, dur=-5))), "event 1 has a negative duration (-5 µs"),
    "endless duration": (file("t.json", trace(changed(KERNEL, dur=1e300))), "has a duration of 1e+300 µs"),
    "huge duration": (file("t.json", trace(changed(KERNEL, dur=10**400))), "event 0 is not as torch.profiler writes"),
    "huge time": (file("t.json", trace(changed(KERNEL, ts=1e200))), "has the time 1e+200 µs"),
    "a time that is a text": (file("t.json", trace(changed(KERNEL, ts="soon"))), "Expected `float`, got `str`"),
    "a name that is a number": (file("t.json", trace(changed(KERNEL, name=7))), "Expected `str`, got `int`"),
    "a name that is null": (file("t.json", trace(changed(KERNEL, name=None))), "Expected `str`, got `null`"),
    "arguments that are a list": (file("t.json", trace(changed(KERNEL, args=[1]))), "Expected `object`, got `array`"),
    "a thread that is a list": (file("t.json", trace(changed(OP, tid=[1]))), "has no process or thread number"),
    "a device below 0": (file("t.json", trace(arguments(KERNEL, device=-1))), "runs on device -1"),
    "a million devices": (file("t.json", trace(arguments(KERNEL, device=10**6))), "runs on device 1000000"),
    "bytes below 0": (file("t.json", trace(arguments(KERNEL, bytes=-1))), "that no computer has"),
    "bytes without end": (file("t.json", trace(arguments(KERNEL, bytes=2**200))), "that no computer has"),
    # other makers, other profilers
    "AMD": (
        file("t.json", trace(KERNEL, deviceProperties=[{"id": 0, "name": "AMD Instinct MI300X"}])),
        "AMD GPU (ROCm)",
    ),
    "AMD without a name": (
        file("t.json", trace(KERNEL, changed(CALL, name="hipLaunchKernel"), deviceProperties=[])),
        "AMD GPU (ROCm)",
    ),
    "MTIA": (file("t.json", trace(OP, changed(OP, cat="mtia_runtime"))), "a trace of Meta's MTIA"),
    "Intel": (file("t.json", trace(OP, changed(OP, cat="xpu_runtime"))), "a trace of an Intel GPU"),
    "CPU alone": (file("t.json", trace(OP, deviceProperties=[])), "without a kernel or a copy"),
    "TensorFlow": (
        file(
            "t.json",
            trace(
                {"ph": "X", "name": "MatMul", "pid": 1, "tid": 1, "ts": 1, "dur": 2},
                KERNEL | {"cat": ""},
                deviceProperties=[],
            ),
        ),
        "not of torch.profiler",
    ),
    "a browser": (file("t.json", trace({"ph": "B", "cat": "v8", "name": "x", "ts": 1})), "not of torch.profiler"),
    # our own files
    "ours, without a device": (
        file("t.json", {"otherData": {"producer": "fakegpu_lab"}, "traceEvents": [OP]}),
        "a recording without a device",
    ),
    "ours, damaged": (
        file("t.json", {"otherData": {"producer": "fakegpu_lab"}, "traceEvents": [changed(KERNEL, dur=-1)]}),
        "event 0 has a negative duration",
    ),
    "ours, with a text as bytes": (
        file("t.json", {"otherData": {"producer": "fakegpu_lab"}, "traceEvents": [arguments(KERNEL, bytes="many")]}),
        "not as fakegpu_lab writes it",
    ),
    # pickles
    "a pickle that runs a command": (
        file("s.pickle", lambda: pickle.dumps(Runs(), protocol=4)),
        "imports a name (STACK_GLOBAL), which no snapshot",
    ),
    "the same, within a snapshot": (
        file("s.pickle", lambda: pickle.dumps(SNAPSHOT | {"x": Runs()}, protocol=2)),
        "imports a name (GLOBAL)",
    ),
    "a pickle of an object": (file("s.pickle", lambda: pickle.dumps(KeyError("a"), protocol=5)), "imports a name"),
    "a persistent id": (file("s.pickle", PROTO + b"\x8c\x01aQ" + STOP), "refers to something outside"),
    "a truncated pickle": (file("s.pickle", lambda: pickle.dumps(SNAPSHOT)[:-10]), "ends in the middle"),
    "a text of 4 GiB": (file("s.pickle", PROTO + b"\x58\xff\xff\xff\xff" + b"a" + STOP), "ends in the middle"),
    "a far memo": (file("s.pickle", PROTO + b"}r\xff\xff\xff\x7f" + STOP), "it has no segments"),
    "an array of bytes": (file("s.pickle", PROTO + b"\x96" + struct.pack("<Q", 2**40) + STOP), "the instruction 0x96"),
    "a long integer": (file("s.pickle", PROTO + b"\x8a\xff" + b"\x01" * 255 + STOP), "an integer of 255 bytes"),
    "a huge integer": (file("s.pickle", PROTO + b"\x8b\x10\x00\x00\x00" + b"\x01" * 16 + STOP), "instruction 0x8b"),
    "a set as a list": (file("s.pickle", PROTO + b"}K\x01a" + STOP), "do not fit together"),
    "an unhashable key": (file("s.pickle", PROTO + b"}(]K\x01u" + STOP), "do not fit together"),
    "nothing on the stack": (file("s.pickle", PROTO + STOP), "do not fit together"),
    "no snapshot": (file("s.pickle", lambda: pickle.dumps({"weights": [1.0, 2.0]})), "no memory snapshot"),
    "segments without sizes": (
        file("s.pickle", lambda: pickle.dumps({"segments": [{"device": 0}]})),
        "no total_size that is a number",
    ),
    "sizes below 0": (
        file("s.pickle", lambda: pickle.dumps({"segments": [SEGMENT | {"total_size": -1}]})),
        "no total_size",
    ),
    "blocks that are a text": (
        file("s.pickle", lambda: pickle.dumps({"segments": [SEGMENT | {"blocks": "many"}]})),
        "no list of blocks",
    ),
    "a block that is a number": (
        file("s.pickle", lambda: pickle.dumps({"segments": [SEGMENT | {"blocks": [1]}]})),
        "no list of blocks",
    ),
    "a history that is a number": (
        file("s.pickle", lambda: pickle.dumps({"segments": [SEGMENT], "device_traces": [1]})),
        "lists of events",
    ),
    "events without sizes": (
        file("s.pickle", lambda: pickle.dumps({"segments": [SEGMENT], "device_traces": [[{"action": "alloc"}]]})),
        "event 0 of cuda:0 has no addr that is a number",
    ),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_one_sentence_says_what_the_file_is(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    make, says = BROKEN[kind]
    path = make(tmp_path)
    with pytest.raises(lab.FakeGpuError) as raised:
        lab.open(path)
    message = str(raised.value)
    assert says in message
    assert path.name in message
    assert "\n" not in message
    assert len(message) < 400
    assert message.endswith(".")
    assert raised.value.__suppress_context__ or raised.value.__context__ is None
    assert not (tmp_path / "executed").exists()


def test_there_are_fifty() -> None:
    assert len(BROKEN) >= 50


def test_the_files_differ_from_one_that_opens_in_what_is_broken_alone(tmp_path: Path) -> None:
    opened = lab.open(file("fine.json", trace(KERNEL, CALL, OP))(tmp_path))
    assert [kernel.name for kernel in opened.kernels] == ["aten::mm"]
    snapshot = lab.open(file("fine.pickle", lambda: pickle.dumps({"segments": [SEGMENT]}))(tmp_path))
    assert snapshot.devices[0].unused == 512


def test_the_limit_is_of_bytes_on_disk_and_expanded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(content, "LIMIT", 1_000)
    with pytest.raises(lab.FakeGpuError, match=r"has 1.97 KiB, and lab.open reads at most 0.98 KiB"):
        lab.open(file("large.json", b"{" + b" " * 2_015)(tmp_path))
    with pytest.raises(lab.FakeGpuError, match=r"more than 0.98 KiB when it is expanded"):
        lab.open(file("large.json.gz", b"{" + b" " * 2_015)(tmp_path))


HOSTILE = '<img src=x onerror="alert(1)"><script>alert(2)</script>\x1b[2J'


def test_names_from_a_file_are_escaped_in_html_and_in_a_terminal(tmp_path: Path) -> None:
    python = {"ph": "X", "cat": "python_function", "pid": 1, "tid": 1, "ts": 1.0, "dur": 8.0, "args": {}}
    opened = lab.open(file("<b>t.json", trace(
        changed(KERNEL, name=HOSTILE), CALL, changed(OP, name=HOSTILE),
        changed(python, name=f"nn.Module: {HOSTILE}"),
        changed(python, name=f"{HOSTILE}/train.py(3): {HOSTILE}", ts=1.5),
        {"ph": "i", "name": "[memory]", "pid": 1, "tid": 1, "ts": 3.0, "args": {
            "Device Type": 1, "Device Id": 0, "Addr": 1, "Bytes": 512, "Total Allocated": 512}},
        deviceProperties=[{"id": 0, "name": HOSTILE}],
    ))(tmp_path))  # fmt: skip
    assert opened.kernels[0].function.startswith("<img")
    tables = (opened.summary(), opened.by_line(), opened.by_module(), opened.at_peak(), lab.advise(opened))
    for shown in (opened, *tables):
        html = shown._repr_html_()
        assert "<img" not in html
        assert "<script" not in html
    for text in (opened.described(), *(str(table) for table in tables)):
        assert "\x1b" not in text
    for figure in (opened.figure(), opened.memory_figure()):
        for bar in figure.data:
            hovers = bar.hovertext if isinstance(bar.hovertext, (list, tuple)) else [bar.hovertext or ""]
            assert not any("<img" in hover or "<script" in hover for hover in hovers)
            texts = bar.text if isinstance(bar.text, (list, tuple)) else [bar.text or ""]
            assert not any("<img" in text for text in texts)
        assert "<img" not in figure.layout.title.text
        assert not any("<img" in name for name in figure.layout.yaxis.ticktext)
        for page in (figure.to_html(), figure.above()):
            assert "<script>alert(2)" not in page
            assert "<img" not in page


def test_nothing_on_this_computer_is_looked_up(tmp_path: Path) -> None:
    """A line of a file is not shown because a trace names it."""
    secret = tmp_path / "secret.txt"
    secret.write_text("the password\n")
    event = {"ph": "X", "cat": "kernel,other", "name": "k", "pid": 2, "tid": 100, "ts": 1.0, "dur": 2.0,
             "args": {"line": f"{secret}:1", "correlation": 1}}  # fmt: skip
    names = {"ph": "M", "name": "process_name", "pid": 2, "tid": 0, "args": {"name": "cuda:0 NVIDIA T4"}}
    opened = lab.open(
        file("t.json", {"otherData": {"producer": "fakegpu_lab"}, "traceEvents": [names, event]})(tmp_path)
    )
    assert opened.kernels[0].line.endswith("secret.txt, line 1")
    assert "password" not in str(opened.by_line()) + str(opened.figure().data)


def test_a_pickle_that_python_reads_as_plain_data_is_read_equally(tmp_path: Path) -> None:
    from fakegpu_lab.opened.plain_pickle import loads

    shared = {"name": "f", "line": 3}
    thing = {
        "a": [1, -1, 255, 65_535, -(2**31), 2**62, -(2**63), 0.5, True, False, None, "é" * 300, b"x" * 300],
        "b": [shared, shared, (), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4)], 7: {}, "many": list(range(3_000)),
        "words": {f"w{n}": f"w{n}" for n in range(700)},
    }  # fmt: skip
    for protocol in (2, 3, 4, 5):
        data = pickle.dumps(thing, protocol=protocol)
        used = {opcode.name for opcode, _, _ in pickletools.genops(data)}
        if not used & {"GLOBAL", "STACK_GLOBAL"}:  # protocol 2 has no bytes of its own
            assert loads(data) == thing
    assert loads(pickle.dumps(thing)) == thing
