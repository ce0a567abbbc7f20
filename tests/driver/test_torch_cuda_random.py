"""Random numbers of devices: default generators, seeds, states, generators that a program makes."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
import torch

import fakegpu_lab as lab


def draw(device: str = "cuda:0", **options: Any) -> list[float]:
    return torch.rand(3, device=device, **options).tolist()


def test_there_is_a_default_generator_for_each_device_once_initialised(machine: Any) -> None:
    assert torch.cuda.default_generators == ()
    torch.cuda.init()
    assert [g.device for g in torch.cuda.default_generators] == [torch.device("cuda:0"), torch.device("cuda:1")]
    assert all(isinstance(g, torch.Generator) for g in torch.cuda.default_generators)
    assert torch.cuda.initial_seed() == 67280421310721


@pytest.mark.parametrize(
    "seed", [torch.manual_seed, torch.cuda.manual_seed_all, torch.cuda.manual_seed, torch.random.manual_seed]
)
def test_seeding_repeats_the_numbers(machine: Any, seed: Any) -> None:
    seed(7)
    first = draw()
    seed(7)
    assert draw() == first
    assert torch.cuda.initial_seed() == 7


def test_manual_seed_is_for_the_current_device_and_manual_seed_all_for_every_one(machine: Any) -> None:
    torch.cuda.manual_seed_all(1)
    assert draw("cuda:0") == draw("cuda:1")
    with torch.cuda.device(1):
        torch.cuda.manual_seed(2)
    assert [g.initial_seed() for g in torch.cuda.default_generators] == [1, 2]
    torch.cuda.seed_all()
    assert len({g.initial_seed() for g in torch.cuda.default_generators}) == 1
    torch.cuda.seed()
    assert len({g.initial_seed() for g in torch.cuda.default_generators}) == 2


def test_a_seed_given_before_the_machine_was_there_counts() -> None:
    torch.manual_seed(11)
    lab.enable("a100", memory="1GiB")
    try:
        first = draw()
        assert torch.cuda.initial_seed() == 11
        torch.manual_seed(11)
        assert draw() == first
    finally:
        lab.disable()


def test_a_seed_given_before_initialisation_counts(machine: Any) -> None:
    torch.cuda.manual_seed_all(5)
    assert not torch.cuda.is_initialized()
    first = draw("cuda:1")
    torch.cuda.manual_seed_all(5)
    assert draw("cuda:1") == first


def test_the_device_s_numbers_are_apart_from_the_host_s(machine: Any) -> None:
    torch.manual_seed(3)
    host = torch.rand(3).tolist()
    torch.manual_seed(3)
    draw()
    torch.nn.functional.dropout(torch.ones(8, device="cuda"))
    torch.randperm(5, device="cuda")
    assert torch.rand(3).tolist() == host


def test_states_can_be_saved_and_restored(machine: Any) -> None:
    states = torch.cuda.get_rng_state_all()
    one = torch.cuda.get_rng_state("cuda:1")
    first = draw("cuda:0"), draw("cuda:1")
    torch.cuda.set_rng_state_all(states)
    assert (draw("cuda:0"), draw("cuda:1")) == first
    torch.cuda.set_rng_state(one, 1)
    assert draw("cuda:1") == first[1]
    assert one.device == torch.device("cpu")
    assert one.dtype == torch.uint8


def test_fork_rng_puts_the_state_back(machine: Any) -> None:
    torch.manual_seed(0)
    with torch.random.fork_rng(devices=[0]):
        inside = draw()
    assert draw() == inside


@pytest.mark.parametrize("device", ["cuda", "cuda:1", torch.device("cuda", 1)])
def test_a_generator_of_one_s_own(machine: Any, device: Any) -> None:
    generator = torch.Generator(device=device).manual_seed(4)
    assert generator.device == torch.device(device)
    where = "cuda:0" if device == "cuda" else "cuda:1"
    first = draw(where, generator=generator)
    assert draw(where, generator=torch.Generator(device).manual_seed(4)) == first
    assert draw(where, generator=generator) != first
    torch.empty(3, device=where).normal_(generator=generator)
    torch.randperm(4, device=where, generator=generator)
    torch.multinomial(torch.ones(4, device=where), 2, generator=generator)


def test_a_generator_of_the_host_is_refused_on_a_device(machine: Any) -> None:
    host = torch.Generator()
    for call in (
        lambda: draw(generator=host),
        lambda: torch.randint(3, (2,), device="cuda", generator=host),
        lambda: torch.ones(2, device="cuda").bernoulli_(generator=host),
    ):
        with pytest.raises(RuntimeError, match=r"^Expected a 'cuda' device type for generator but found 'cpu'$"):
            call()


def test_a_generator_can_be_cloned_and_pickled(machine: Any) -> None:
    generator = torch.Generator("cuda:1").manual_seed(9)
    copies = generator.clone_state(), pickle.loads(pickle.dumps(generator))
    first = draw("cuda:1", generator=generator)
    for copy in copies:
        assert copy.device == generator.device
        assert draw("cuda:1", generator=copy) == first


def test_generators_of_the_host_are_what_they_were(machine: Any) -> None:
    assert torch.Generator().device == torch.Generator("cpu").device == torch.device("cpu")
    assert isinstance(torch.default_generator, torch.Generator)
    assert isinstance(torch.Generator("cuda"), torch._C.Generator)
    assert not isinstance(3, torch.Generator)
    with pytest.raises(torch.AcceleratorError, match="invalid device ordinal"):
        torch.Generator("cuda:7")


def test_the_next_machine_starts_from_the_default_seed(machine: Any) -> None:
    first = draw()
    lab.reset()
    assert draw() == first


def test_a_state_is_a_seed_and_an_offset(machine: Any) -> None:
    generator = torch.Generator("cuda").manual_seed(2**40 + 7)
    draw(generator=generator)
    state = generator.get_state()
    assert state.tolist() == [*(2**40 + 7).to_bytes(8, "little"), *(4).to_bytes(8, "little")]
    expected = draw(generator=generator)
    other = torch.Generator("cuda").set_state(state)
    assert (other.initial_seed(), other.get_offset()) == (2**40 + 7, 4)
    assert draw(generator=other) == expected
    assert torch.Generator("cuda").set_state(state[:8]).get_offset() == 0  # a seed alone
    assert draw(generator=torch.Generator("cuda").manual_seed(2**40 + 7).set_offset(4)) == expected


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda g: g.set_state(torch.zeros(5, dtype=torch.uint8)), RuntimeError, "RNG state is wrong size"),
        (lambda g: g.set_state(torch.zeros(16)), TypeError, "RNG state must be a torch.ByteTensor"),
        (lambda g: g.set_state([1]), TypeError, "expected a torch.ByteTensor, but got list"),
        (lambda g: g.set_offset(3), RuntimeError, "offset must be a multiple of 4"),
        (lambda g: g.set_offset("a"), RuntimeError, "manual_offset expected a long, but got str"),
        (lambda g: g.manual_seed("a"), RuntimeError, "manual_seed expected a long, but got str"),
        (lambda g: g.graphsafe_set_state(torch.Generator()), RuntimeError, "Expected a CUDA Generator"),
        (lambda g: torch.cuda.set_rng_state(torch.get_rng_state()), RuntimeError, "RNG state is wrong size"),
    ],
)
def test_a_wrong_state_is_refused_in_cuda_s_words(machine: Any, call: Any, error: Any, message: str) -> None:
    with pytest.raises(error) as caught:
        call(torch.Generator("cuda"))
    assert str(caught.value) == message


def test_negative_seeds_and_offsets_wrap(machine: Any) -> None:
    generator = torch.Generator("cuda").manual_seed(-1)
    assert generator.initial_seed() == 2**64 - 1
    assert generator.set_offset(-4).get_offset() == 2**64 - 4
    assert generator.seed() < 2**53
    assert generator.get_offset() == 0


def test_generators_may_share_a_state(machine: Any) -> None:
    generator = torch.Generator("cuda")
    shared = generator.graphsafe_get_state()
    shared.manual_seed(3)
    assert generator.initial_seed() == 3
    other = torch.Generator("cuda").graphsafe_set_state(generator)
    draw(generator=other)
    assert generator.get_offset() == 4
    copy = generator.clone_state()
    draw(generator=generator)
    assert copy.get_offset() == 4


def test_a_generator_of_a_device_is_refused_on_the_host(machine: Any) -> None:
    ours = torch.Generator("cuda")
    before = torch.ones(3)
    for call in (
        lambda: torch.rand(3, generator=ours),
        lambda: torch.randn(3, generator=ours),
        lambda: torch.randint(3, (3,), generator=ours),
        lambda: torch.randperm(3, generator=ours),
        lambda: torch.normal(0.0, before, generator=ours),
        lambda: torch.bernoulli(before, generator=ours),
        lambda: before.multinomial(2, generator=ours),
        lambda: before.normal_(generator=ours),
        lambda: torch.nn.init.uniform_(before, generator=ours),
        lambda: list(torch.utils.data.RandomSampler(range(5), generator=ours)),
    ):
        with pytest.raises(RuntimeError, match=r"^Expected a 'cpu' device type for generator but found 'cuda'$"):
            call()
    assert before.tolist() == [1, 1, 1]
    with torch.device("cuda"):
        assert torch.rand(3, generator=ours).is_cuda


def test_checkpointing_repeats_dropout(machine: Any) -> None:
    from torch.utils.checkpoint import checkpoint

    x = torch.ones(1000, device="cuda", requires_grad=True)
    for reentrant in (False, True):
        x.grad = None
        out = checkpoint(torch.nn.Dropout(0.5), x, use_reentrant=reentrant)
        torch.rand(5, device="cuda")
        out.sum().backward()
        assert torch.equal(x.grad != 0, out != 0)
