"""Distributions on a device: each against CUDA's formula on known words, and how far each moves the generator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

import fakegpu_lab as lab
from fakegpu_lab.hardware.philox import curand

if TYPE_CHECKING:
    from collections.abc import Callable

F = torch.nn.functional


def words(numel: int, offset: int = 0, seed: int = 0) -> list[list[int]]:
    """The four words of each of that many threads at that offset."""
    return np.stack([w.copy() for w in curand.words(seed, offset // 4, 0, numel)], 1).tolist()


def uniform(numel: int, offset: int = 0) -> torch.Tensor:
    """What `curand_uniform4` gives first to each of that many threads."""
    return torch.tensor([w[0] for w in words(numel, offset)], dtype=torch.float64).to(torch.float32) * 2**-32 + 2**-33


@pytest.fixture(autouse=True)
def from_seed_zero(machine: Any) -> None:
    torch.manual_seed(0)


def offset() -> int:
    return torch.cuda.default_generators[0].get_offset()


def test_uniform_between_bounds() -> None:
    drawn = torch.empty(50, device="cuda").uniform_(-2, 3)
    expected = (uniform(50).double() * 5 - 2).float()
    assert torch.equal(drawn.cpu(), expected)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_half_that_rounds_up_to_the_bound_becomes_the_lower_one(dtype: torch.dtype) -> None:
    drawn = torch.rand(5000, device="cuda", dtype=dtype).cpu()
    rounded = uniform(5000).to(dtype)
    assert (rounded == 1).any()
    assert torch.equal(drawn, torch.where(rounded == 1, torch.zeros_like(rounded), rounded))


def test_doubles_take_two_words_each() -> None:
    drawn = torch.rand(40, device="cuda", dtype=torch.float64).cpu()
    expected = [(w[0] ^ w[1] << 21) * 2.0**-53 + 2.0**-54 for w in words(40)]
    assert drawn.tolist() == expected


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_normals_are_rounded_floats(dtype: torch.dtype) -> None:
    single = torch.randn(70, device="cuda").cpu()
    torch.manual_seed(0)
    assert torch.equal(torch.randn(70, device="cuda", dtype=dtype).cpu(), single.to(dtype))


def test_complex_normals_are_pairs_of_half_the_variance() -> None:
    pairs = torch.randn(14, device="cuda").cpu() * np.float32(2**-0.5)
    torch.manual_seed(0)
    drawn = torch.view_as_real(torch.randn(7, device="cuda", dtype=torch.complex64).cpu())
    torch.testing.assert_close(drawn.flatten(), pairs)


def test_integers_below_2_28_take_one_word() -> None:
    drawn = torch.randint(-5, 1000, (30,), device="cuda").tolist()
    assert drawn == [w[0] % 1005 - 5 for w in words(30)]


@pytest.mark.parametrize(("low", "high"), [(0, 2**28), (-(2**40), 2**61), (-(2**63), 2**63 - 1)])
def test_integers_of_a_wider_range_take_two(low: int, high: int) -> None:
    drawn = torch.randint(low, high, (30,), device="cuda").tolist()
    assert drawn == [(w[0] << 32 | w[1]) % (high - low) + low for w in words(30)]


def test_the_full_range_of_64_bits() -> None:
    drawn = torch.empty(20, dtype=torch.int64, device="cuda").random_(-(2**63), None).tolist()
    assert [value % 2**64 for value in drawn] == [w[0] << 32 | w[1] for w in words(20)]


@pytest.mark.parametrize(
    ("dtype", "modulus"),
    [
        (torch.uint8, 256), (torch.int8, 128), (torch.int32, 2**31), (torch.bool, 2), (torch.float32, 2**24 + 1),
        (torch.float16, 2**11 + 1), (torch.bfloat16, 2**8 + 1),
    ],
)  # fmt: skip
def test_random_without_bounds(dtype: torch.dtype, modulus: int) -> None:
    drawn = torch.empty(40, dtype=dtype, device="cuda").random_()
    assert drawn.tolist() == [w[0] % modulus for w in words(40)]


def test_random_bounds_that_a_float_cannot_hold_move_inwards() -> None:
    with pytest.warns(UserWarning, match=r"to - 1 is out of bounds \[-\(2\^11\), 2\^11\]"):
        drawn = torch.empty(4000, dtype=torch.float16, device="cuda").random_(0, 65504)
    with pytest.warns(UserWarning, match="to - 1 is out of bounds"):
        torch.empty(4, dtype=torch.float16, device="cuda").random_(0, 65504)
    assert drawn.max() < 65504
    assert drawn.tolist() == [float(np.float16(w[0] % 65472)) for w in words(4000)]


def test_bernoulli_of_a_number_is_a_uniform_number_below_it() -> None:
    drawn = torch.empty(60, device="cuda").bernoulli_(0.3)
    assert torch.equal(drawn.cpu(), (uniform(60) < np.float32(0.3)).float())


def test_bernoulli_of_a_tensor_spends_four_words_of_a_thread() -> None:
    p = torch.linspace(0, 1, 41)
    drawn = torch.bernoulli(p.cuda())
    flat = torch.tensor([x for w in words(11) for x in w][:41], dtype=torch.float64).float() * 2**-32 + 2**-33
    assert torch.equal(drawn.cpu(), (flat <= p).float())


def test_exponential_is_the_logarithm_of_a_uniform_number() -> None:
    drawn = torch.empty(1000, device="cuda").exponential_(2.0)
    torch.testing.assert_close(drawn.cpu(), uniform(1000).log() / -2)
    assert (drawn > 0).all()


def test_geometric_cauchy_and_log_normal() -> None:
    u = uniform(500).double()
    assert torch.equal(torch.empty(500, device="cuda").geometric_(0.25).cpu(), (u.log() / np.log(0.75)).ceil().float())
    torch.manual_seed(0)
    cauchy = torch.empty(500, device="cuda").cauchy_(1, 2).cpu()
    torch.testing.assert_close(cauchy.double(), 1 + 2 * torch.tan(torch.pi * (u - 0.5)), rtol=1e-3, atol=1e-3)
    torch.manual_seed(0)
    normal = torch.randn(500, device="cuda").cpu()
    torch.manual_seed(0)
    torch.testing.assert_close(torch.empty(500, device="cuda").log_normal_(0, 1).cpu(), normal.exp())


def test_a_transposed_or_sliced_tensor_is_filled_in_the_order_of_its_memory() -> None:
    flat = uniform(12)
    assert torch.equal(torch.empty(3, 4, device="cuda").t().uniform_().cpu(), flat.view(3, 4).t())
    torch.manual_seed(0)
    sliced = torch.zeros(12, 2, device="cuda")
    sliced[:, 0].uniform_()
    assert torch.equal(sliced[:, 0].cpu(), flat)
    assert not sliced[:, 1].any()
    torch.manual_seed(0)
    image = torch.empty(1, 3, 2, 2, device="cuda").to(memory_format=torch.channels_last).uniform_()
    assert torch.equal(image.cpu().permute(0, 2, 3, 1).flatten(), flat)


def dropped(numel: int, vector: int, threads: int, keep: float) -> list[bool]:
    """`fused_dropout_kernel_vec`, element by element: what stays."""
    calls, taken = max(1, vector // 4), min(vector, 4)
    stays = []
    for index in range(numel):
        thread, step = index // vector % threads, index // (threads * vector)
        call, lane = divmod(index % vector, taken)
        word = int(curand.words(0, step * calls + call, thread, 1)[lane][0])
        stays.append(bool(np.float32(word) * np.float32(2**-32) + np.float32(2**-33) < np.float32(keep)))
    return stays


@pytest.mark.parametrize(
    ("dtype", "numel", "vector"),
    [(torch.float32, 256, 4), (torch.float32, 258, 2), (torch.float16, 256, 8), (torch.bfloat16, 260, 4),
     (torch.float64, 64, 2)],
)  # fmt: skip
def test_dropout_gives_each_thread_neighbours(dtype: torch.dtype, numel: int, vector: int) -> None:
    blocks = -(-numel // 256)
    out = F.dropout(torch.ones(numel, device="cuda", dtype=dtype), 0.3)
    stays = dropped(numel, vector, blocks * 256, 0.7)
    assert (out != 0).tolist() == stays
    assert out.max().item() == torch.tensor(1 / np.float32(0.7)).to(dtype).item() or dtype is torch.float64
    assert offset() == 4


def test_dropout_of_an_odd_number_of_elements_goes_by_threads() -> None:
    out = F.dropout(torch.ones(301, device="cuda"), 0.5)
    assert torch.equal(out.cpu() != 0, uniform(301) < 0.5)


def test_dropout_that_needs_no_numbers_draws_none() -> None:
    x = torch.ones(16, device="cuda")
    F.dropout(x, 0.5, training=False)
    F.dropout(x, 1.0)
    F.dropout(x, 0.0)
    torch.native_dropout(x, 0.5, False)
    assert offset() == 0


def test_permutation_sorts_by_random_keys() -> None:
    n = 200
    drawn = torch.randperm(n, device="cuda").tolist()
    bits = int(np.ceil(np.log2(n - (6 * n * n + 1) / (np.log(0.9) * 12))))
    keys = [((w[0] << 32 | w[1]) % (2**32 - 1) - 2**31) % 2**bits for w in words(n)]
    assert len(set(keys)) == n
    assert drawn == sorted(range(n), key=keys.__getitem__)
    assert offset() == 4 + 200


def test_equal_keys_of_a_permutation_are_shuffled() -> None:
    from fakegpu_lab.driver.random.sampling import _shuffle_equal

    order = np.arange(6)
    _shuffle_equal(order, np.array([1, 5, 5, 5, 7, 8]), 0, 8)
    first, second = (int(curand.words(0, 2, 1, 1)[i][0]) for i in (0, 1))
    expected = [0, 1, 2, 3, 4, 5]
    for i, word in ((2, first), (1, second)):
        other = word % (i + 1)
        expected[1 + i], expected[1 + other] = expected[1 + other], expected[1 + i]
    assert order.tolist() == expected


@pytest.mark.parametrize("n", [30_000, 100_000])
def test_a_long_permutation_is_one(n: int) -> None:
    assert torch.equal(torch.randperm(n, device="cuda").cpu().sort().values, torch.arange(n))


def test_multinomial_is_a_race_of_exponential_numbers() -> None:
    weights = torch.tensor([0.1, 0.0, 5.0, 2.0, 1.0])
    drawn = torch.multinomial(weights.cuda(), 3).tolist()
    rivals = weights / -uniform(5).log()
    assert drawn == rivals.topk(3).indices.tolist()


def test_multinomial_with_replacement_searches_a_running_sum() -> None:
    weights = torch.tensor([[1.0, 0.0, 3.0], [2.0, 2.0, 4.0]])
    drawn = torch.multinomial(weights.cuda(), 200, replacement=True).cpu()
    assert drawn.shape == (2, 200)
    for row in range(2):
        u = uniform(512)[row * 256 : row * 256 + 200]
        running = (weights[row] / weights[row].sum()).cumsum(0)
        assert torch.equal(drawn[row], torch.searchsorted(running, u))
    assert offset() == 4


def test_normal_with_tensors() -> None:
    standard = torch.randn(6, device="cuda").cpu()
    mean, std = torch.arange(6.0), torch.full((6,), 3.0)
    for drawn, expected in (
        (lambda: torch.normal(mean.cuda(), std.cuda()), standard * 3 + mean),
        (lambda: torch.normal(mean.cuda(), 2.0), standard * 2 + mean),
        (lambda: torch.normal(1.0, std.cuda()), standard * 3 + 1),
        (lambda: torch.normal(1.0, 2.0, (6,), device="cuda"), standard * 2 + 1),
    ):
        torch.manual_seed(0)
        torch.testing.assert_close(drawn().cpu(), expected)


def test_rrelu_draws_a_slope_for_each_element() -> None:
    x = torch.tensor([-1.0, 2.0, -3.0], device="cuda")
    out = F.rrelu(x, 0.1, 0.4, training=True).cpu()
    slopes = uniform(3).double() * 0.3 + 0.1
    torch.testing.assert_close(out, torch.where(x.cpu() > 0, x.cpu(), (x.cpu() * slopes).float()))


OFFSETS: list[tuple[Callable[[], object], int]] = [
    (lambda: torch.rand(1, device="cuda"), 4),
    (lambda: torch.randn(0, device="cuda"), 0),
    (lambda: torch.rand(4 * 108 * 2048, device="cuda"), 4),
    (lambda: torch.rand(4 * 108 * 2048 + 1, device="cuda"), 8),
    (lambda: torch.rand(4 * 108 * 2048, device="cuda", dtype=torch.float64), 8),
    (lambda: torch.empty(3, device="cuda").bernoulli_(torch.ones(3, device="cuda")), 12),
    (lambda: torch.rand_like(torch.ones(5, device="cuda")), 4),
    (lambda: torch.randperm(10, device="cuda"), 16),
    (lambda: torch.randperm(0, device="cuda"), 0),
    (lambda: torch.multinomial(torch.ones(70_000, 3, device="cuda"), 5, replacement=True), 8),
    (lambda: torch.poisson(torch.ones(3, device="cuda")), 20),
    (lambda: torch.binomial(torch.ones(3, device="cuda"), torch.ones(3, device="cuda") / 2), 44),
    (lambda: torch._standard_gamma(torch.ones(3, device="cuda")), 12),
]


@pytest.mark.parametrize(("call", "expected"), OFFSETS)
def test_how_far_an_op_moves_the_generator(call: Callable[[], object], expected: int) -> None:
    call()
    assert offset() == expected


@pytest.mark.parametrize(
    "call",
    [
        lambda: torch.poisson(torch.full((50,), 3.0, device="cuda")),
        lambda: torch._standard_gamma(torch.ones(50, device="cuda")),
        lambda: torch.distributions.Dirichlet(torch.ones(50, device="cuda")).sample(),
    ],
)
def test_what_is_not_reproduced_repeats_and_moves_on(call: Callable[[], torch.Tensor]) -> None:
    host = torch.get_rng_state()
    first, second = call(), call()
    assert not torch.equal(first, second)
    torch.manual_seed(0)
    assert torch.equal(call(), first)
    torch.set_rng_state(host)


def test_without_values_the_generator_still_moves() -> None:
    lab.enable("a100", compute="meta")
    torch.manual_seed(0)
    torch.rand(4 * 108 * 2048 + 1, device="cuda")
    F.dropout(torch.empty(9, device="cuda"))
    torch.randperm(10, device="cuda")
    torch.multinomial(torch.empty(9, device="cuda"), 1)
    assert offset() == 8 + 4 + 16 + 4
    torch.manual_seed(0)
    torch.empty(2**29 + 2, device="cuda").normal_()  # 2 GiB and 8 bytes: in two halves, after a step for the whole
    whole, half = (-(-n // (4 * 108 * 2048)) * 4 for n in (2**29 + 2, 2**28 + 1))
    assert offset() == whole + 2 * half


CONTINUOUS = (
    "Exponential distribution is a continuous probability distribution. dtype must be a floating point but you "
    "specified Long"
)
OVERLAPPING = (
    "unsupported operation: more than one element of the written-to tensor refers to a single memory location. Please "
    "clone() the tensor before performing the operation."
)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: x.normal_(0, -1), "normal expects std >= 0.0, but found std -1"),
        (lambda x: x.uniform_(2, 1), "uniform_ expects to return a [from, to) range, but found from=2 > to=1"),
        (lambda x: x.geometric_(2), "geometric_ expects p to be in (0, 1), but got p=2"),
        (lambda x: x.random_(5, 5), "random_ expects 'from' to be less than 'to', but got from=5 >= to=5"),
        (lambda x: x.long().normal_(), "\"normal_kernel_cuda\" not implemented for 'Long'"),
        (lambda x: x.bool().geometric_(0.5), "\"geometric_cuda\" not implemented for 'Bool'"),
        (lambda x: x.long().exponential_(), CONTINUOUS),
        (lambda x: torch.native_dropout(x.long(), 0.5, True), "\"fused_dropout\" not implemented for 'Long'"),
        (lambda x: torch.randperm(5, dtype=torch.bfloat16, device="cuda"),
         "\"randperm_out_cuda\" not implemented for 'BFloat16'"),
        (lambda x: torch.multinomial(x.long(), 1),
         "multinomial only supports floating-point dtypes for input, got: Long"),
        (lambda x: torch.multinomial(x, 4),
         "cannot sample n_sample > prob_dist.size(-1) samples without replacement"),
        (lambda x: x.expand(2, 3).normal_(), OVERLAPPING),
    ],
)  # fmt: skip
def test_refusals_in_cuda_s_words(call: Callable[[torch.Tensor], object], message: str) -> None:
    with pytest.raises(RuntimeError) as caught:
        call(torch.ones(3, device="cuda"))
    assert str(caught.value) == message
