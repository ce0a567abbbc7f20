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
    where = str(generator.device)
    assert where == ("cuda:0" if device == "cuda" else "cuda:1")
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
