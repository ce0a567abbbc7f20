"""What is said of a kernel below numba's own words, or where a card would say nothing."""

from __future__ import annotations

import sys
from typing import Any

import pytest
import torch

import fakegpu_lab as lab

pytest.importorskip("numba", reason="the extra `numba` is not installed")
pytest.importorskip("greenlet", reason="the extra `numba` is not installed")

from numba import cuda, float32

pytestmark = pytest.mark.usefixtures("machine")
notes = pytest.mark.skipif(sys.version_info < (3, 11), reason="exceptions have notes from Python 3.11 on")


def text(error: BaseException) -> str:
    """The message and the notes below it, as a traceback shows them."""
    return "\n".join([str(error), *getattr(error, "__notes__", ())])


def ones(*shape: int, **options: Any) -> torch.Tensor:
    return torch.ones(*shape, device="cuda", **options)


@cuda.jit
def copied(x, out):
    i = cuda.grid(1)
    out[i] = x[i]


@cuda.jit
def sized_by_argument(x, n):
    tile = cuda.shared.array(n, float32)
    tile[0] = x[0]


@cuda.jit
def without_a_type(x):
    tile = cuda.shared.array((32, 32))
    tile[0, 0] = x[0]


@cuda.jit(device=True)
def factorial(n):
    if n < 2:
        return 1
    return n * factorial(n - 1)


@cuda.jit
def calls_itself(x):
    x[0] = factorial(4)


@notes
def test_a_tensor_of_the_cpu() -> None:
    """numba has no type for it; numba-cuda takes its address, which the card cannot read."""

    def launch() -> None:
        copied[1, 8](ones(8), torch.empty(8))
        torch.cuda.synchronize()

    with pytest.raises((ValueError, torch.AcceleratorError)) as caught:
        launch()
    assert "on the CPU" in text(caught.value)
    assert ".cuda()" in text(caught.value)


@notes
@pytest.mark.parametrize(
    ("kernel", "more", "said"),
    [
        (sized_by_argument, (4,), "must be a number or a global constant"),
        (without_a_type, (), "cuda.shared.array(shape, dtype) has two arguments"),
        (calls_itself, (), "functions that call them"),
    ],
)
def test_what_numba_cannot_compile_is_said_below_its_own_words(kernel, more, said):
    with pytest.raises(Exception, match=r"shared\.array|insert_unresolved_ref") as caught:
        kernel[1, 1](ones(4), *more)
    assert said in text(caught.value)


@cuda.jit
def misspelled(x):
    x[cuda.gird(1)] = 0


@notes
def test_a_misspelled_name_is_no_limit_of_the_compilers() -> None:
    with pytest.raises(AttributeError, match="gird") as caught:
        misspelled[1, 1](ones(4))
    assert "supports neither" not in text(caught.value)


@cuda.jit
def divides(x):
    x[1] = x[1] // x[0]


@cuda.jit
def insists(x):
    if x[0] == 0:
        raise ValueError("zero")


@notes
def test_an_exception_in_a_kernel_says_which_thread_and_what_a_card_does():
    with pytest.raises(ZeroDivisionError) as caught:
        divides[1, 1](ones(2, dtype=torch.int32) * 0)
    assert "Thread (0, 0, 0) of block (0, 0, 0) divides an integer by 0. A card raises nothing" in text(caught.value)
    with pytest.raises(ValueError, match="zero") as failed:
        insists[1, 1](ones(2) * 0)
    assert "A card reports this only with @cuda.jit(debug=True, opt=False)" in text(failed.value)


@notes
def test_a_tensor_on_another_card():
    lab.enable("a100:2")
    copied[1, 4](torch.ones(4, device="cuda:1"), ones(4))
    with pytest.raises(torch.AcceleratorError, match="an illegal memory access") as caught:
        torch.cuda.synchronize()
    assert "The argument x is on cuda:1, but the kernel was launched on cuda:0" in text(caught.value)


@cuda.jit
def talks(x):
    print("x", x[0], cuda.threadIdx.x)


def test_print_in_a_kernel_has_the_digits_of_printf(capsys):
    talks[1, 2](ones(1))
    assert capsys.readouterr().out.splitlines() == ["x 1.000000 0", "x 1.000000 1"]


@cuda.jit
def adds_up(x, out):
    out[0] += x[cuda.threadIdx.x]


def test_keyword_arguments_are_refused_as_by_numba():
    with pytest.raises(TypeError, match=r"_LaunchConfiguration\.__call__\(\) got an unexpected keyword argument 'out'"):
        copied[1, 4](ones(4), out=ones(4))


def test_a_new_machine_prints_a_race_again_and_says_what_to_use(capsys):
    adds_up[1, 64](ones(64), ones(1))
    adds_up[1, 64](ones(64), ones(1))
    lab.enable("t4")
    adds_up[1, 64](ones(64), ones(1))
    said = capsys.readouterr().out
    assert said.count("Race on cuda:0 in adds_up") == 2
    assert "Threads that all update one element need cuda.atomic." in said
