"""The words a machine is asked for in."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakegpu_lab.hardware.catalogue.spec import MAX_DEVICES, MachineSpec, parse_spec
from fakegpu_lab.hardware.errors import FakeGpuError


def ids(spec: MachineSpec) -> list[str]:
    return [card.id for card in spec.gpus]


def refusal(text: str, memory: str | int | None = None) -> str:
    with pytest.raises(FakeGpuError) as caught:
        parse_spec(text, memory)
    return str(caught.value)


KNOWN = ["a100", "t4", "rtx4090", "h100", "a100-mig-1g.5gb", "v100-16gb", "rtx4060-laptop"]


@given(
    st.lists(st.tuples(st.sampled_from(KNOWN), st.integers(1, 9)), min_size=1, max_size=7),
    st.sampled_from([",", ", ", " , "]),
    st.sampled_from(["{name}:{count}", "{name} : {count}", "{name} x{count}", "{count}x {name}", "{name} × {count}"]),
    st.booleans(),
)
def test_devices_come_in_the_order_written(wanted: list[tuple[str, int]], comma: str, form: str, upper: bool) -> None:
    text = comma.join(form.format(name=name, count=count) for name, count in wanted)
    spec = parse_spec(text.upper() if upper else text)
    assert ids(spec) == [name for name, count in wanted for _ in range(count)]
    assert (spec.node, spec.nodes) == (None, 1)


@given(st.text())
def test_any_text_is_a_machine_or_a_clear_refusal(text: str) -> None:
    with contextlib.suppress(FakeGpuError):
        assert 1 <= len(parse_spec(text).gpus) <= MAX_DEVICES


def test_the_default_a100_is_the_sxm_module_of_80_gb() -> None:
    assert parse_spec("a100").gpus[0].name == "NVIDIA A100-SXM4-80GB"


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("A100-80GB", "a100"),
        ("a100 80gb", "a100"),
        ("NVIDIA A100-SXM4-80GB", "a100"),
        ("A100-PCIE-40GB", "a100-pcie-40gb"),
        ("RTX 4090", "rtx4090"),
        ("4090", "rtx4090"),
        ("GeForce RTX 4070 Ti SUPER", "rtx4070ti-super"),
        ("NVIDIA GeForce RTX 4060 Laptop GPU", "rtx4060-laptop"),
        ("Tesla T4", "t4"),
        ("Tesla V100-SXM2-16GB", "v100-16gb"),
        ("H100 SXM", "h100"),
        ("RTX A6000", "rtx-a6000"),
        ("a6000", "rtx-a6000"),
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", "a100-mig-1g.5gb"),
    ],
)
def test_names_are_taken_as_people_write_them(written: str, meant: str) -> None:
    assert ids(parse_spec(written)) == [meant]


@pytest.mark.parametrize("text", ["dgx-h100 x2", "dgx-h100:2", "2x DGX H100", "DGX-H100 × 2"])
def test_several_nodes(text: str) -> None:
    spec = parse_spec(text)
    assert spec.node is not None
    assert (spec.node.id, spec.nodes, spec.gpus_per_node) == ("dgx-h100", 2, 8)
    assert ids(spec) == ["h100"] * 16


@pytest.mark.parametrize("text", ['"dgx-h100 x2"', "'dgx-h100 x2'", ' "dgx-h100 x2" '])
def test_quotation_marks_are_no_part_of_a_name(text: str) -> None:
    assert parse_spec(text).text == "dgx-h100 x2"


def test_a_node_stands_alone() -> None:
    assert "mixes 'dgx-a100'" in refusal("dgx-a100,t4")


def test_a_file_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my-gpu.yaml").write_text("based_on: t4\nname: My GPU\nmemory: 4 GiB\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    for text, count in [("./my-gpu.yaml", 1), ("my-gpu.yaml:2", 2), (f"{tmp_path / 'my-gpu.yaml'}:3", 3)]:
        spec = parse_spec(text)
        assert [(card.id, card.name) for card in spec.gpus] == [("my-gpu", "My GPU")] * count
        assert spec.gpus[0].total_memory_bytes == 4 * 2**30
        assert spec.gpus[0].sm_count == parse_spec("t4").gpus[0].sm_count


@pytest.mark.skipif(sys.platform == "win32", reason="on Windows the name is an absolute path")
@pytest.mark.parametrize(("suffix", "count"), [("", 1), (":2", 2)])
def test_the_colon_of_a_windows_drive_is_no_count(
    suffix: str, count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "C:\\gpus\\x.yaml").write_text("based_on: t4\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert len(parse_spec("C:\\gpus\\x.yaml" + suffix).gpus) == count


def test_a_missing_file_is_named() -> None:
    assert "no file" in refusal("./nowhere.yaml:2")
    assert "nowhere.yaml" in refusal("./nowhere.yaml:2")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a100:0", ["'a100:0'", "0 devices", "1 to 64", "'a100:1'"]),
        ("a100:-1", ["-1 devices", "'a100:1'"]),
        ("a100:10000", ["10,000 devices", "1 to 64", "'a100:8'"]),
        ("dgx-h100:9", ["72 devices", "at most 64"]),
        ("a100:40,t4:40", ["80 devices", "at most 64"]),
        ("a100:two", ["'two'", "whole number", "a100:2"]),
        ("a100:1.5", ["'1.5'", "whole number"]),
        ("a100:", ["whole number"]),
        ("", ["There is no GPU in"]),
        ("a100,,t4", ["comma"]),
        ("rtx4099", ["'rtx4099'", "'rtx4090'"]),
        ("a1000", ["'a1000'", "'a100'"]),
        ("dgx-h1000", ["'dgx-h100'"]),
        ("qqqqqqqq", ["'qqqqqqqq'", "'a100'", "YAML"]),
    ],
)
def test_a_refusal_says_what_was_asked_what_there_is_and_what_to_try(text: str, said: list[str]) -> None:
    message = refusal(text)
    assert all(words in message for words in said), message
    assert "\n" not in message


def test_memory_can_be_limited_on_every_device() -> None:
    spec = parse_spec("a100,t4", memory="2GiB")
    assert [card.total_memory_bytes for card in spec.gpus] == [2**31, 2**31]
    whole = parse_spec("a100,t4")
    mixed = parse_spec("a100,t4", memory="40 GiB")
    assert [card.total_memory_bytes for card in mixed.gpus] == [40 * 2**30, whole.gpus[1].total_memory_bytes]


def test_memory_is_no_way_to_a_larger_card() -> None:
    message = refusal("t4", "40GiB")
    assert all(words in message for words in ["'40GiB'", "14.56 GiB", "Tesla T4"])
    assert "'lots' is not a size" in refusal("t4", "lots")
    assert "not above zero" in refusal("t4", "-2GiB")


def test_only_the_file_asked_for_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[Path] = []
    text_of = Path.read_text

    def reading(self: Path, encoding: str | None = None) -> str:
        read.append(self)
        return text_of(self, encoding=encoding)

    monkeypatch.setattr(Path, "read_text", reading)
    parse_spec("quadro-rtx8000:2")
    assert len(read) <= 1
