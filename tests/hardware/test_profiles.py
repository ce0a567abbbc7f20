"""The bundled GPUs and nodes: complete, consistent with themselves, and read strictly."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import yaml

from fakegpu_lab.hardware.catalogue.lookup import catalogue, find, gpu, key, node, profiles_dir
from fakegpu_lab.hardware.catalogue.profile import GpuProfile, NodeProfile
from fakegpu_lab.hardware.errors import FakeGpuError

if TYPE_CHECKING:
    from pathlib import Path

GPUS = {one: gpu(one) for one in catalogue()}
NODES = {one: node(one) for one in catalogue("nodes")}

REFERENCE = """
    rtx4060 rtx4060ti rtx4070-super rtx4070 rtx4070ti-super rtx4070ti rtx4080-super rtx4080 rtx4090 l4 l40s
    rtx-2000-ada rtx-4000-ada rtx-4000-sff-ada rtx-4500-ada rtx-5000-ada rtx-6000-ada rtx3050 rtx3060
    rtx3060ti rtx3070 rtx3070ti rtx3080 rtx3080ti rtx3090 rtx3090ti a10 a100-1g a100 a30 a40
    jetson-agx-orin-64gb rtx-a2000 rtx-a4000 rtx-a4500 rtx-a5000 rtx-a5500 rtx-a6000
    rtx5050 rtx5060 rtx5060ti rtx5070 rtx5070ti rtx5080 rtx5090
    b100 b200 b300 jetson-t5000 gb10 rtx-pro-2000-blackwell rtx-pro-4000-blackwell-sff rtx-pro-4000-blackwell
    rtx-pro-4500-blackwell rtx-pro-5000-blackwell rtx-pro-6000-blackwell h100 h200 gtx980 gtx1050 gtx1050ti
    gtx1060-6gb gtx1070 gtx1070ti gtx1080 gtx1080ti p100 p4 rtx2060-super rtx2060 rtx2070-super rtx2070
    rtx2080-super rtx2080 rtx2080ti t4 quadro-rtx4000 quadro-rtx5000 quadro-rtx6000 quadro-rtx8000 v100
"""
COURSES = """
    a100-40gb a100-pcie-40gb a100-pcie-80gb a100-mig-1g.5gb a100-mig-2g.10gb a100-mig-3g.20gb a100-mig-7g.40gb
    h100-pcie h100-nvl v100-16gb gb200 rtx3050-laptop rtx3060-laptop rtx4050-laptop rtx4060-laptop
    rtx4070-laptop rtx4080-laptop rtx4090-laptop
"""

# FP32 lanes of an SM, by compute capability: CUDA C++ Programming Guide, arithmetic instructions.
LANES = {(6, 0): 64, (7, 0): 64, (7, 5): 64, (8, 0): 64}
ARCHITECTURES = {
    "maxwell": {(5, 2)},
    "pascal": {(6, 0), (6, 1)},
    "volta": {(7, 0)},
    "turing": {(7, 5)},
    "ampere": {(8, 0), (8, 6), (8, 7)},
    "ada": {(8, 9)},
    "hopper": {(9, 0)},
    "blackwell": {(10, 0), (10, 3), (11, 0), (12, 0), (12, 1)},
}
SINCE = {"tf32": (8, 0), "bf16": (8, 0), "fp8": (8, 9), "fp4": (10, 0)}

each_gpu = pytest.mark.parametrize("card", GPUS.values(), ids=GPUS.keys())
each_node = pytest.mark.parametrize("machine", NODES.values(), ids=NODES.keys())


def test_all_81_of_the_reference_are_there_and_the_courses_too() -> None:
    reference, courses = set(REFERENCE.split()), set(COURSES.split())
    assert len(reference) == 81
    assert reference | courses <= set(GPUS)
    assert {"dgx-a100", "dgx-h100", "cloud-4xt4", "desktop-2xrtx4090"} <= set(NODES)


@each_gpu
def test_bandwidth_is_bus_times_clock_times_pumps(card: GpuProfile) -> None:
    on_the_wires = card.memory_bus_bits / 8 * card.memory_clock_mhz * 1e6 * card.memory_pumps
    assert card.memory_bandwidth == pytest.approx(on_the_wires, rel=0.03)


@each_gpu
def test_dense_is_half_of_sparse(card: GpuProfile) -> None:
    dense, sparse = card.peak_flops.given(), card.sparse_flops.given()
    assert all(dense[dtype] == pytest.approx(peak / 2, rel=0.02) for dtype, peak in sparse.items())
    assert not sparse or card.compute_capability >= (8, 0)


@each_gpu
def test_fp32_is_lanes_times_two_times_clock(card: GpuProfile) -> None:
    lanes = card.sm_count * LANES.get(card.compute_capability, 128)
    assert card.peak("fp32") == pytest.approx(lanes * 2 * card.core_clock_mhz * 1e6, rel=0.02)


@each_gpu
def test_architecture_capability_and_formats_agree(card: GpuProfile) -> None:
    assert card.compute_capability in ARCHITECTURES[card.architecture]
    for dtype, since in SINCE.items():
        has = dtype in card.dtypes
        assert has == (card.compute_capability >= since), dtype
    assert {dtype.removesuffix("_tensor") for dtype in card.peak_flops.given()} <= set(card.dtypes)
    assert ("fp16" in card.peak_flops.given()) == (card.compute_capability not in {(5, 2), (6, 1)})


@each_gpu
def test_narrower_formats_are_no_slower(card: GpuProfile) -> None:
    order = ["fp64", "fp32", "tf32", "fp16", "fp8", "fp4"]
    peaks = [card.peak(dtype) for dtype in order if dtype in card.peak_flops.given()]
    assert peaks == sorted(peaks)
    assert card.peak_flops.bf16 in {None, card.peak_flops.fp16}


@each_gpu
def test_cards_of_one_capability_have_one_kind_of_sm(card: GpuProfile) -> None:
    def sm(one: GpuProfile) -> tuple[int, ...]:
        limits = (one.shared_mem_per_sm, one.shared_mem_per_block, one.shared_mem_per_block_optin)
        return (*limits, one.regs_per_sm, one.max_threads_per_sm, one.max_blocks_per_sm, one.warp_size)

    peers = [one for one in GPUS.values() if one.compute_capability == card.compute_capability]
    assert {sm(one) for one in peers} == {sm(card)}
    assert card.shared_mem_per_block <= card.shared_mem_per_block_optin <= card.shared_mem_per_sm


@each_gpu
def test_what_cuda_reports_is_a_little_less_than_the_label(card: GpuProfile) -> None:
    assert 0.9 <= card.total_memory_bytes / card.memory_bytes <= 1
    assert 60 * 2**20 <= card.context_bytes <= 640 * 2**20


@each_gpu
def test_nvlink_is_a_whole_number_of_links(card: GpuProfile) -> None:
    if card.nvlink is not None:
        assert card.nvlink.bandwidth / card.nvlink.links in {28.125e9, 40e9, 50e9, 100e9}
        assert card.segment not in {"laptop", "embedded"}


@each_gpu
def test_every_figure_has_a_source_or_is_called_estimated(card: GpuProfile) -> None:
    keys = {str(info.validation_alias or name) for name, info in GpuProfile.model_fields.items()}
    assert {name.split(".")[0] for name in card.estimated} <= keys
    assert all(link.startswith("https://") for link in card.source)


@pytest.mark.parametrize("kind", ["gpus", "nodes"])
def test_names_and_aliases_lead_to_one_profile_and_stand_in_the_head(kind: str) -> None:
    owner: dict[str, str] = {}
    for one in catalogue(kind):
        text = (profiles_dir() / kind / f"{one}.yaml").read_text(encoding="utf-8")
        head = yaml.safe_load(text.split("\n\n", 1)[0])
        whole = yaml.safe_load(text)
        assert {"name", "aliases"} & set(whole) == {"name", "aliases"} & set(head)
        for name in (one, whole["name"], *whole.get("aliases", [])):
            assert owner.setdefault(key(name), one) == one, name
            assert find(name).id == one


@pytest.mark.parametrize(
    ("card", "name", "total"),
    [
        ("a100", "NVIDIA A100-SXM4-80GB", 79.25),
        ("h100", "NVIDIA H100 80GB HBM3", 79.11),
        ("h100-pcie", "NVIDIA H100 PCIe", 79.11),
        ("t4", "Tesla T4", 14.56),
        ("v100-16gb", "Tesla V100-SXM2-16GB", 15.77),
        ("rtx4090", "NVIDIA GeForce RTX 4090", 23.64),
        ("b200", "NVIDIA B200", 178.35),
        ("a100-mig-1g.5gb", "NVIDIA A100-SXM4-40GB MIG 1g.5gb", 4.75),
    ],
)
def test_well_known_cards_call_themselves_what_they_do(card: str, name: str, total: float) -> None:
    assert GPUS[card].name == name
    assert round(GPUS[card].total_memory_bytes / 2**30, 2) == total


def test_peaks_from_the_datasheets() -> None:
    a100, h100, t4 = GPUS["a100"], GPUS["h100"], GPUS["t4"]
    assert (a100.peak("fp64"), a100.peak("tf32"), a100.peak("bf16")) == (9.7e12, 156e12, 312e12)
    assert (h100.peak("bf16"), h100.peak("fp8")) == (989.4e12, 1979e12)
    assert t4.peak("fp16") == pytest.approx(65e12, rel=0.01)
    assert t4.peak("bf16") == t4.peak("fp32"), "a T4 has no bf16 units and computes it in fp32"


def test_a_mig_slice_is_a_part_of_its_card() -> None:
    card, seventh = GPUS["a100-40gb"], GPUS["a100-mig-1g.5gb"]
    assert seventh.memory_bandwidth == pytest.approx(card.memory_bandwidth / 8, rel=0.01)
    assert seventh.peak("fp16") == pytest.approx(card.peak("fp16") * 14 / 108, rel=0.01)
    assert seventh.nvlink is None


def test_profiles_are_frozen_and_limited_copies_leave_them_alone() -> None:
    card = GPUS["t4"]
    with pytest.raises(ValueError, match="frozen"):
        card.sm_count = 1
    assert card.with_memory(2**30).total_memory_bytes == 2**30
    assert card.total_memory_bytes > 2**30
    assert card == gpu("Tesla T4")


@each_node
def test_a_node_is_made_of_known_cards_and_links_they_have(machine: NodeProfile) -> None:
    for group in machine.gpus:
        card = GPUS[group.gpu]
        assert machine.pcie.generation <= card.pcie.generation
        if machine.fabric.kind == "pcie":
            assert machine.fabric.bandwidth == pytest.approx(2 * machine.pcie.bandwidth, rel=0.03)
        else:
            assert card.nvlink is not None
            assert machine.fabric.bandwidth == card.nvlink.bandwidth
    assert machine.gpu_count % machine.pcie.gpus_per_switch == 0
    assert not machine.fabric.in_network_reduction or machine.fabric.kind == "nvswitch"


BAD = [
    ("", ["holds nothing", "based_on: a100"]),
    ("- a\n- b\n", ["holds a list"]),
    ("name: [\n", ["line 2", "not valid YAML"]),
    ("memory: 4: 5\n", ["line 1", "not valid YAML", "quotes"]),
    ("name: x\n", ["architecture is missing", "`architecture: ampere`", "based_on: a100"]),
    ("based_on: a100x\n", ["based_on", "'a100'"]),
    ("based_on: a100\nmemory: -4 GiB\n", ["memory", "'-4 GiB'", "above zero", "2GiB"]),
    ("based_on: a100\nmemory: 16\n", ["memory is 16", "`memory: 80 GiB`"]),
    ("based_on: a100\nmemry: 4 GiB\n", ["memry is not a field", "`memory`"]),
    ("based_on: a100\nsm_count: -3\n", ["sm_count is -3", "greater than 0", "`sm_count: 108`"]),
    ("based_on: a100\ntotal_memory: 90 GiB\n", ["total_memory (90.00 GiB)", "memory (80.00 GiB)"]),
    ("based_on: a100\nmemory_bandwidth: 900 GB\n", ["memory_bandwidth", "'900 GB'", "900 GB/s"]),
    ("based_on: a100\npeak_flops: {fp32: fast}\n", ["peak_flops.fp32", "'fast'", "312 TFLOP/s"]),
    ("based_on: a100\npeak_flops: {fp16: 3 TFLOP/s}\n", ["peak_flops", "fp32"]),
    ("based_on: a100\ncompute_capability: eight\n", ["compute_capability", "'eight'", '"8.0"']),
    ("based_on: a100\npcie: {generation: 9, lanes: 16}\n", ["pcie.generation is 9", "`generation: 4`"]),
    ("gpus: [{gpu: a100, count: 0}]\n", ["gpus.0.count is 0", "`count: 8`"]),
]


@pytest.mark.parametrize(("text", "said"), BAD)
def test_a_malformed_file_is_told_by_file_field_and_remedy(text: str, said: list[str], tmp_path: Path) -> None:
    path = tmp_path / "my-gpu.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(FakeGpuError) as caught:
        find(str(path))
    message = str(caught.value)
    assert message.startswith("my-gpu.yaml")
    assert all(words in message for words in said), message
    assert "\n" not in message
    assert caught.value.__context__ is None or caught.value.__suppress_context__  # no traceback of pydantic's


def test_a_file_that_is_no_text_or_no_yaml_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(FakeGpuError, match=r"x\.yaml cannot be read"):
        gpu(str(tmp_path / "x.yaml"))
    with pytest.raises(FakeGpuError, match=r"does not end in \.yaml"):
        gpu(str(tmp_path / "x.toml"))


def test_a_node_is_no_gpu(tmp_path: Path) -> None:
    with pytest.raises(FakeGpuError, match="No GPU is called 'dgx-a100'"):
        gpu("dgx-a100")
    with pytest.raises(FakeGpuError, match="'dgx-h100'"):
        node("dgx-h10")
    path = tmp_path / "box.yaml"
    path.write_text((profiles_dir() / "nodes" / "cloud-4xt4.yaml").read_text(encoding="utf-8"), encoding="utf-8")
    assert node(str(path)).gpu_count == 4
    with pytest.raises(FakeGpuError, match="is a node"):
        gpu(str(path))
