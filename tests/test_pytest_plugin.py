"""``pytest --gpus``: a test suite on simulated GPUs. Each run is a pytest of its own, in a process of its own."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

if TYPE_CHECKING:
    from collections.abc import Callable

pytest_plugins = ["pytester"]

SUITE = {
    "test_machine": """
        import pytest, torch
        AT_IMPORT = torch.cuda.is_available(), torch.cuda.device_count()
        kept = []

        @pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
        def test_gpus_are_there_before_the_first_import():
            import conftest
            assert AT_IMPORT == conftest.AT_IMPORT == (True, 2)

        def test_leaves_all_that_it_can():
            kept.append(torch.ones(1000, device="cuda"))
            torch.ones(9000, device="cuda")
            torch.cuda.manual_seed(3)
            torch.cuda.set_device(1)
            torch.cuda.set_stream(torch.cuda.Stream())

        def test_finds_a_machine_as_in_a_new_process():
            assert torch.cuda.current_device() == 0
            assert torch.cuda.current_stream(1) == torch.cuda.default_stream(1)
            assert torch.cuda.max_memory_allocated() == 4096, "what a module keeps stays"
            assert torch.cuda.initial_seed() == 67280421310721
            assert kept[0].sum().item() == 1000

        def test_a_device_assert():
            with pytest.raises(RuntimeError, match="device-side assert"):
                torch.zeros(2, device="cuda")[torch.tensor([5], device="cuda")].sum().item()
            with pytest.raises(RuntimeError, match="device-side assert"):
                torch.ones(2, device="cuda").sum().item()

        def test_the_next_test_knows_nothing_of_it(gpu):
            assert torch.ones(2, device=gpu).sum().item() == 2
    """,
    "test_fixtures": """
        import pytest, torch

        def test_gpu(gpu, gpus, gpu_machine):
            assert (gpu, gpus) == (torch.device("cuda:0"), [torch.device("cuda:0"), torch.device("cuda:1")])
            assert gpu_machine.spec.text == "a100:2"

        @pytest.mark.gpus("t4:4", memory="2GiB")
        def test_a_machine_of_its_own(gpus):
            assert (len(gpus), torch.cuda.mem_get_info()[1]) == (4, 2**31)
            with pytest.raises(torch.cuda.OutOfMemoryError, match="CUDA out of memory"):
                torch.empty(3 * 2**30, dtype=torch.uint8, device="cuda")

        @pytest.mark.gpus(memory="1GiB")
        def test_a_machine_of_the_usual_kind_with_less_memory(gpus):
            assert (len(gpus), torch.cuda.mem_get_info()[1]) == (1, 2**30)

        def test_the_usual_machine_is_back(gpus):
            assert len(gpus) == 2 and "A100" in torch.cuda.get_device_name()

        def test_waits(assert_no_sync):
            with assert_no_sync():
                (torch.ones(2, device="cuda") * 2).relu()
            with assert_no_sync(at_most=1):
                torch.ones(2, device="cuda").sum().item()
            with pytest.raises(AssertionError, match="does not wait for a GPU(.|\\n)*test_fixtures.py"):
                with assert_no_sync():
                    torch.ones(2, device="cuda").sum().item()

        def test_copies(assert_transfers):
            with assert_transfers(h2d=1, d2h=0) as trace:
                torch.ones(2).to("cuda")
            assert trace.transfers[0].nbytes == 8
            with pytest.raises(AssertionError):
                with assert_transfers(h2d=0):
                    torch.ones(2).to("cuda")

        def test_memory(assert_peak_memory):
            with assert_peak_memory(below="1MiB"):
                torch.ones(2, device="cuda")
            with pytest.raises(AssertionError, match="peak memory"):
                with assert_peak_memory(below="1MiB"):
                    torch.ones(2**20, device="cuda")

        def test_an_error_is_the_tests_own(assert_no_sync):
            with pytest.raises(KeyError):
                with assert_no_sync():
                    raise KeyError("mine")
    """,
    "test_ranks": """
        import pytest, torch
        import torch.distributed as dist

        @pytest.fixture
        def value():
            return 3.0

        @pytest.mark.ranks(2)
        def test_ranks_share_fixtures(value, tmp_path):
            dist.init_process_group("nccl")
            torch.cuda.set_device(dist.get_rank())
            x = torch.full((2,), value * dist.get_rank(), device="cuda")
            dist.all_reduce(x)
            assert x[0].item() == 3
            dist.destroy_process_group()

        def test_ranks_are_over():
            assert not dist.is_initialized()

        @pytest.mark.ranks(2)
        def test_hangs():
            dist.init_process_group("nccl")
            torch.cuda.set_device(dist.get_rank())
            if dist.get_rank() == 0:
                dist.all_reduce(torch.ones(1, device="cuda"))

        @pytest.mark.ranks(2)
        @pytest.mark.parametrize("wrong", [1])
        def test_one_rank_fails(wrong):
            import os
            assert int(os.environ["RANK"]) != wrong, "this rank is wrong"

        @pytest.mark.ranks("two")
        def test_a_wrong_mark():
            pass
    """,
    "test_styles": """
        import unittest, torch
        from hypothesis import given, settings, strategies

        class Case(unittest.TestCase):
            @classmethod
            def setUpClass(cls):
                cls.kept = torch.arange(3, device="cuda")

            def test_one(self):
                torch.cuda.set_device(1)
                self.assertEqual(self.kept.sum().item(), 3)

            def test_two(self):
                self.assertEqual(torch.cuda.current_device(), 0)
                self.assertEqual(self.kept.sum().item(), 3)

            @unittest.skipIf(not torch.cuda.is_available(), "no GPU")
            def test_three(self):
                pass

        @settings(max_examples=5, deadline=None)
        @given(strategies.integers(1, 9))
        def test_property(n):
            assert torch.ones(n, device="cuda").sum().item() == n
    """,
}
CONFTEST = "import torch\nAT_IMPORT = torch.cuda.is_available(), torch.cuda.device_count()\n"


@pytest.fixture
def run(pytester: pytest.Pytester) -> Callable[..., pytest.RunResult]:
    def started(*options: str, **files: str) -> pytest.RunResult:
        pytester.makepyfile(**files)
        return pytester.runpytest_subprocess("-p", "no:cacheprovider", *options)

    return started


def test_a_suite_runs_on_simulated_gpus(run: Callable[..., pytest.RunResult], pytester: pytest.Pytester) -> None:
    pytester.makeconftest(CONFTEST)
    result = run("--gpus", "a100:2", "-rA", **SUITE)
    result.assert_outcomes(passed=19, failed=3)
    out = result.stdout.str()
    assert "gpus: 2 x NVIDIA A100" in out
    assert "rank 1 has ended without calling any operation" in out, "a hang is an error with its reason"
    assert "this rank is wrong" in out
    assert "@pytest.mark.ranks takes the number of ranks" in out


@pytest.mark.long
def test_workers_of_xdist_have_a_machine_each(run: Callable[..., pytest.RunResult], pytester: pytest.Pytester) -> None:
    pytest.importorskip("xdist")
    pytester.makeconftest(CONFTEST)
    pytester.makeini("[pytest]\ngpus = a100:2\n")
    suite = {name: SUITE[name] for name in ("test_machine", "test_styles")}
    result = run("-n", "2", "--dist", "loadfile", **suite)
    result.assert_outcomes(passed=9)


WITHOUT_TORCH = """
    import os, subprocess, sys

    def test_torch_is_not_imported():
        assert "torch" not in sys.modules

    def test_nvml_sees_the_machine():
        import pynvml
        pynvml.nvmlInit()
        assert pynvml.nvmlDeviceGetCount() == 2
        assert "torch" not in sys.modules

    def test_a_child_process_sees_the_machine():
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=True).stdout
        assert listed.count("A100") == 2
"""
SAYS = """
    import sys
    def pytest_unconfigure(config):
        print("torch was imported:", "torch" in sys.modules)
"""


def test_an_empty_suite_does_not_wait_for_torch(
    run: Callable[..., pytest.RunResult], pytester: pytest.Pytester
) -> None:
    pytester.makeconftest(SAYS)
    out = run("--gpus", "a100:2", test_empty="").stdout
    out.fnmatch_lines(["gpus: 2 x NVIDIA A100-SXM4-80GB, simulated by *", "torch was imported: False"])


def test_a_suite_without_torch_does_not_wait_for_it(
    run: Callable[..., pytest.RunResult], pytester: pytest.Pytester
) -> None:
    pytester.makeconftest(SAYS)
    result = run("--gpus", "a100:2", test_plain=WITHOUT_TORCH)
    result.assert_outcomes(passed=3)
    result.stdout.fnmatch_lines(["torch was imported: False"])


@pytest.mark.parametrize(
    "before", ["import pynvml", pytest.param("import fakegpu_lab; fakegpu_lab.disable()", marks=pytest.mark.long)]
)
def test_a_test_that_imports_torch_finds_the_machine(run: Callable[..., pytest.RunResult], before: str) -> None:
    text = f"""
        import sys
        def test_before():
            {before}
            assert "torch" not in sys.modules
        def test_first():
            import torch
            assert torch.cuda.device_count() == 2
            assert torch.cuda.max_memory_allocated() == 0
            torch.ones(9000, device="cuda:1")
            torch.cuda.set_device(1)
        def test_second():
            import torch
            assert torch.cuda.current_device() == torch.cuda.max_memory_allocated(1) == 0
    """
    run("--gpus", "a100:2", test_late=text).assert_outcomes(passed=3)


ALSO_FIRST = [
    "def test_x(gpu_machine): assert gpu_machine.spec.text == 'a100:2'",
    "import pytest\n@pytest.mark.gpus('t4:3')\ndef test_x(gpus, gpu_machine): assert len(gpus) == 3",
    "import fakegpu_lab as lab\ndef test_x(): assert lab.machine().spec.text == 'a100:2'",
    "import os, pytest\n@pytest.mark.ranks(2)\ndef test_x(): assert os.environ['WORLD_SIZE'] == '2'",
    "def test_x(assert_no_sync):\n  with assert_no_sync():\n    import torch; torch.ones(2, device='cuda')",
]


@pytest.mark.parametrize(
    "text",
    [
        "from fakegpu_lab import panel\nimport torch\nassert torch.cuda.is_available()\ndef test_x(): pass",
        *(pytest.param(one, marks=pytest.mark.long) for one in ALSO_FIRST),
    ],
)
def test_the_machine_is_there_for_whoever_asks_first(run: Callable[..., pytest.RunResult], text: str) -> None:
    run("--gpus", "a100:2", test_first=text).assert_outcomes(passed=1)


def test_torch_may_be_imported_before_the_option_is_read(
    run: Callable[..., pytest.RunResult], pytester: pytest.Pytester
) -> None:
    pytester.makepyfile(early="import torch\nassert torch.cuda.device_count() == 0\n")
    pytester.makeconftest(CONFTEST)
    text = "import conftest\ndef test_x(gpus): assert conftest.AT_IMPORT == (True, 2) and len(gpus) == 2"
    run("-p", "early", "--gpus", "a100:2", test_plain=text).assert_outcomes(passed=1)


def test_nothing_happens_without_the_option(run: Callable[..., pytest.RunResult], pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\ngpus = t4\n")
    text = """
        import sys, pytest
        def test_torch_is_not_even_imported():
            assert "torch" not in sys.modules
        @pytest.mark.gpus("t4")
        def test_marked(): pass
        @pytest.mark.ranks(2)
        def test_ranks(): pass
        def test_fixture(gpu): pass
    """
    result = run("--gpus", "none", "-rs", test_plain=text)
    result.assert_outcomes(passed=1, skipped=3)
    assert "needs GPUs: run pytest --gpus a100" in result.stdout.str()
    assert "gpus:" not in result.stdout.str()


def test_a_wrong_spec_is_one_sentence(run: Callable[..., pytest.RunResult]) -> None:
    result = run("--gpus", "a101:2", test_plain="def test_x(): pass")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "--gpus a101:2: " in result.stderr.str()
    assert "Traceback" not in result.stderr.str()


def test_auto_takes_the_computers_own_gpus(run: Callable[..., pytest.RunResult], pytester: pytest.Pytester) -> None:
    """A build of torch for CUDA with two cards is pretended, by the simulated machine itself."""
    pytester.makepyfile(
        pretended="import fakegpu_lab as lab, torch\nlab.enable('rtx4090:2')\ntorch.version.cuda = '13.0'\n"
        "from fakegpu_lab import pytest_plugin\n"
    )
    text = """
        import pytest, torch
        def test_real(gpu, gpus):
            assert "4090" in torch.cuda.get_device_name(gpu) and len(gpus) == 2
        def test_simulated_only(gpu_machine): raise AssertionError
        def test_recorded(assert_no_sync):
            with assert_no_sync(): raise AssertionError
        @pytest.mark.gpus("t4:4")
        def test_four(): raise AssertionError
        @pytest.mark.gpus("a100:2", memory="1GiB")
        def test_two(): pass
        @pytest.mark.ranks(2)
        def test_ranks(): raise AssertionError
    """
    result = run("-p", "pretended", "--gpus", "auto:a100:2", "-rs", test_plain=text)
    result.assert_outcomes(passed=2, skipped=4)
    assert "gpus: 2 of this computer's own (NVIDIA GeForce RTX 4090)" in result.stdout.str()
    assert "needs 4 GPUs; this computer has 2" in result.stdout.str()


def test_the_steps_of_the_workflow_in_the_documents_run(run: Callable[..., pytest.RunResult]) -> None:
    workflow = yaml.safe_load((Path(__file__).parents[1] / "docs" / "examples" / "test-cuda.yml").read_text())
    steps = [step["run"] for step in workflow["jobs"]["simulated-gpus"]["steps"] if "run" in step]
    assert [step.split()[:4] for step in steps[:-1]] == [["python", "-m", "pip", "install"]] * 3
    assert "whl/cpu" in steps[0], "the CPU build is there before anything needs torch"
    package = shlex.split(steps[1])[4].replace("$FAKEGPU_LAB", workflow["env"]["FAKEGPU_LAB"])
    assert re.fullmatch(r"git\+(https://\S+|\$\{\{ vars\.FAKEGPU_LAB_REPOSITORY \}\})", package)
    python, flag, module, *options = steps[-1].split()
    assert (python, flag, module) == ("python", "-m", "pytest")
    run(*options, test_plain="def test_x(gpus): assert len(gpus) == 2").assert_outcomes(passed=1)


def test_auto_simulates_where_there_are_none(run: Callable[..., pytest.RunResult]) -> None:
    text = "def test_x(gpus): assert len(gpus) == 3"
    run("--gpus", "auto:t4:3", test_plain=text).assert_outcomes(passed=1)
