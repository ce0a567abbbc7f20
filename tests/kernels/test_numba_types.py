"""Numbers in kernels have numba's types: in signatures, functions, integers, records and random numbers."""

from __future__ import annotations

import builtins
import subprocess
import sys
from collections import namedtuple

import numpy as np
import pytest
import torch

pytest.importorskip("numba", reason="the extra `numba` is not installed")
pytest.importorskip("greenlet", reason="the extra `numba` is not installed")

from numba import cuda, int64, uint32, uint64
from numba.cuda import libdevice, random
from numba.cuda.cudadrv import devices

pytestmark = [
    pytest.mark.usefixtures("machine"),
    pytest.mark.filterwarnings("ignore:Host array used in CUDA kernel"),
]


def results(count: int, dtype: type = np.float64) -> np.ndarray:
    return np.zeros(count, dtype)


def test_a_function_with_signatures_converts_its_arguments_and_its_result():
    @cuda.jit("int32(int32, int32)", device=True)
    def whole_sum(x, y):
        return x + y

    @cuda.jit(["float32(float32)", "int64(int64)"], device=True)
    def tenth(x):
        return x / 10

    @cuda.jit
    def calls(out, x, y):
        out[0] = whole_sum(x, y)
        out[1] = tenth(y)
        out[2] = tenth(25)

    out = results(3)
    calls[1, 1](out, 1.5, np.float32(2.9))
    assert out.tolist() == [3, np.float32(np.float64(np.float32(2.9)) / 10), 2]


def test_a_kernel_with_a_signature_converts_its_arguments():
    @cuda.jit("void(float64[:], int32, float32)")
    def signed(out, whole, single):
        out[0] = whole / 2
        out[1] = single

    out = results(2)
    signed[1, 1](out, 3.7, 0.1)
    assert out.tolist() == [1.5, np.float32(0.1)]


@cuda.jit
def bits(out, narrow, wide, unsigned):
    out[0] = cuda.clz(narrow[0])
    out[1] = cuda.clz(wide[0])
    out[2] = cuda.brev(unsigned[0])
    out[3] = cuda.clz(cuda.threadIdx.x)
    out[4] = cuda.popc(wide[0])


def test_bits_are_counted_in_the_type_of_the_integer():
    out = results(5, np.int64)
    bits[1, 1](out, np.array([8], np.int32), np.array([-1], np.int64), np.array([3], np.uint32))
    assert out.tolist() == [28, 0, 3 << 30, 32, 64]


@cuda.jit
def unsigned(out, x, y):
    out[0] = x[0] - y[0]  # both are uint32: a uint64
    out[1] = uint64(x[0]) * uint64(0xBF58476D1CE4E5B9)
    out[2] = uint32(x[0] - y[0])
    out[3] = int64(x[0]) - y[0]


def test_unsigned_integers_wrap():
    out = results(4, np.uint64)
    unsigned[1, 1](out, np.array([3], np.uint32), np.array([5], np.uint32))
    assert out.tolist() == [2**64 - 2, 3 * 0xBF58476D1CE4E5B9 % 2**64, 2**32 - 2, 2**64 - 2]


@cuda.jit
def mixed(out, x):
    out[0] = x[0] + 1  # a uint64 and an int64: a float64


def test_a_uint64_and_a_signed_integer_give_a_float64():
    out = results(1, np.uint64)
    mixed[1, 1](out, np.array([2**53], np.uint64))
    assert out.tolist() == [2**53]


@cuda.jit
def casts(out, x):
    out[0] = np.float32(x) * 2.0
    out[1] = np.int8(x + 300)
    out[2] = libdevice.sinf(x)


def test_types_convert_numbers_as_c_does():
    out = results(3)
    casts[1, 1](out, 0.1)
    assert out.tolist() == [2 * np.float64(np.float32(0.1)), 44, np.sin(np.float32(0.1))]


@cuda.jit
def sines(out, x):
    np.sin(x, out)


def test_a_function_of_numpy_on_arrays():
    out, x = results(4), np.arange(4.0)
    sines[1, 1](out, x)
    np.testing.assert_allclose(out, np.sin(x))


def test_the_context_that_numba_itself_asks_for():
    assert devices.get_context().device.compute_capability == (8, 0)


@cuda.jit
def extremes(out, x):
    out[0] = min(x, 2.0)
    out[1] = max(x, 3, 2.5)


def test_min_and_max():
    out = results(2)
    extremes[1, 1](out, 1.5)
    assert out.tolist() == [1.5, 3.0]


Point = namedtuple("Point", "x y")  # noqa: PYI024 - numba knows no other


@cuda.jit
def adds_a_point(out, point):
    out[()] = out[()] + point.x + point.y


def test_named_tuples_and_arrays_of_no_dimension():
    out = np.array(1.0)
    adds_a_point[1, 1](out, Point(2, 3))
    assert out == 6


PARTICLE = np.dtype([("mass", np.float32), ("hits", np.int32)])


@cuda.jit
def hit(particles):
    i = cuda.grid(1)
    particles[i].hits += 1
    particles[i]["mass"] = particles[i].mass * 2.5


def test_structured_elements():
    particles = np.zeros(8, PARTICLE)
    particles["mass"] = np.arange(8)
    there = cuda.to_device(particles)
    hit[1, 4](there[::2])
    back = there.copy_to_host()
    assert back["hits"].tolist() == [1, 0] * 4
    assert back["mass"].tolist() == [0, 1, 5, 3, 10, 5, 15, 7]
    assert there[2] == back[2]
    assert there.reshape(2, 4).shape == (2, 4)
    with pytest.raises(TypeError, match="torch has no such type"):
        torch.as_tensor(there, device="cuda")


@cuda.jit
def draws(states, out):
    i = cuda.grid(1)
    out[i, 0] = random.xoroshiro128p_uniform_float32(states, i)
    out[i, 1] = random.xoroshiro128p_normal_float64(states, i)


def test_random_numbers_are_numbas():
    out = results(32, np.float64).reshape(16, 2)
    draws[1, 16](random.create_xoroshiro128p_states(16, seed=7), out)
    states = np.zeros(16, random.xoroshiro128p_dtype)
    random.init_xoroshiro128p_states_cpu(states, 7, 0)
    pairs = [
        [random.xoroshiro128p_uniform_float32(states, i), random.xoroshiro128p_normal_float64(states, i)]
        for i in range(16)
    ]
    np.testing.assert_allclose(out, pairs, rtol=1e-12)


def test_a_tensor_over_a_device_array_shares_its_memory():
    array = cuda.to_device(np.arange(4.0))
    tensor = torch.as_tensor(array, device="cuda")
    tensor[0] = 9
    assert array.copy_to_host().tolist() == [9, 1, 2, 3]


@pytest.mark.filterwarnings("error:Host array used in CUDA kernel")
def test_arrays_that_host_and_device_share():
    shared = cuda.managed_array(4)
    shared[:] = 1
    hit_all[1, 4](shared)
    assert shared.tolist() == [2, 2, 2, 2]


@cuda.jit
def hit_all(x):
    x[cuda.grid(1)] += 1


FIRST = """
import sys; sys.path[:0] = {path!r}
import fakegpu_lab as lab, numpy as np
lab.enable("a100")
from numba import cuda, float32, vectorize
{first}
@cuda.jit
def reverse(a):
    tile = cuda.shared.array(32, float32)
    i = cuda.threadIdx.x
    tile[i] = a[i]
    cuda.syncthreads()
    a[i] = cuda.shfl_down_sync(0xFFFFFFFF, tile[31 - i], 1)
a = np.arange(32, dtype=np.float32)
reverse[1, 32](cuda.to_device(a))
print("done")
"""


@pytest.mark.parametrize(
    "first",
    [
        "cuda.jit('float32(float32, float32)', device=True)(lambda x, y: x + y)",
        "def add(x, y): return x + y\nvectorize(['float32(float32, float32)'], target='cuda')(add)",
        "import numba.cuda.cudaimpl",
    ],
)
def test_whatever_numba_compiles_first(first):
    program = FIRST.format(path=sys.path, first=first)
    ran = subprocess.run([sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True, check=False)
    assert ran.stdout.endswith("done\n"), ran.stderr


ALONE = """
from numba import cuda
import numpy as np
@cuda.jit
def add(x):
    x[cuda.grid(1)] += 1
x = np.zeros(4)
add[1, 4](cuda.to_device(x))
print(cuda.get_current_device().name)
"""


def test_a_program_that_does_without_torch(tmp_path):
    (tmp_path / "alone.py").write_text(ALONE)
    command = [sys.executable, "-m", "fakegpu_lab", "run", "-d", "t4", "alone.py"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert ran.stdout == "b'Tesla T4'\n", ran.stderr
    assert "1 (32 B)" in ran.stderr  # the copy, in the table


def test_builtins_where_python_keeps_them_as_a_module():
    """As in a program's ``__main__`` and in a notebook's cells; in an imported module they are a dict."""
    names = {"__builtins__": builtins, "cuda": cuda}
    exec("@cuda.jit\ndef fill(x):\n    for i in range(len(x)):\n        x[i] = max(i, 2)\n", names)
    filled = cuda.device_array(4)
    names["fill"][1, 1](filled)
    assert filled.copy_to_host().tolist() == [2, 2, 2, 3]
