"""What memory is for: each category by a program whose answer is known, and their sum by any program."""

from __future__ import annotations

import gc
import os
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import fakegpu_lab as lab

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

    from fakegpu_lab.hardware.memory_categories import Categories


@pytest.fixture(autouse=True)
def a_card() -> Iterator[None]:
    gc.collect()
    lab.enable("a100:2", memory="4GiB")
    yield
    lab.disable()


def held(device: int = 0) -> Categories:
    """The categories of a device, whose sum is held to the allocator's at every look."""
    memory = lab.snapshot(categories=True).devices[device].memory
    assert memory.categories is not None
    assert memory.categories.total == memory.allocated == torch.cuda.memory_allocated(device)
    assert min(memory.categories.model_dump().values()) >= 0
    return memory.categories


def rounded(*numels: int, itemsize: int = 4) -> int:
    return sum(-(-numel * itemsize // 512) * 512 for numel in numels)


def test_a_training_step_by_categories() -> None:
    model = nn.Linear(256, 128).cuda()
    weights = rounded(256 * 128, 128)
    assert held().model_dump() == {**dict.fromkeys(type(held()).model_fields, 0), "parameters": weights}
    optimizer = torch.optim.Adam(model.parameters())
    batch = torch.ones(64, 256).to("cuda")
    assert held().inputs == rounded(64 * 256)
    loss = torch.tanh(model(batch)).sum()
    assert held().activations == rounded(64 * 128, 64 * 128, 1) - rounded(64 * 128)  # tanh saves only its result
    assert held().workspace == 8_519_680
    loss.backward()
    assert held().gradients == weights
    assert held().activations == rounded(1)
    optimizer.step()
    assert held().optimizer_state == 2 * weights
    optimizer.zero_grad()
    assert held().gradients == 0
    assert held().other == 0
    assert held(1).total == 0


def test_what_autograd_saves_is_an_activation_also_where_no_python_object_holds_it() -> None:
    x = torch.ones(64, 64, device="cuda")
    norm, drop = nn.LayerNorm(64, device="cuda"), nn.Dropout()
    before = held()
    assert before.other == rounded(64 * 64)
    y = drop(norm(x))
    statistics, mask = rounded(64, 64), rounded(64 * 64, itemsize=1)
    assert held().activations == rounded(64 * 64) + statistics + mask  # the norm's own result is needed by nobody
    del y
    assert held() == before


def test_tensors_of_ones_own() -> None:
    plain = torch.zeros(1000, device="cuda")
    assert held().other == rounded(1000)
    weight = torch.zeros(64, 64, device="cuda", requires_grad=True)
    assert held().parameters == rounded(64 * 64)
    y = torch.ones(8, 64).cuda() @ weight.t()  # a view of a leaf is no activation, though it has a grad_fn
    assert held().parameters == rounded(64 * 64)
    assert held().activations == rounded(8 * 64)
    detached = y.detach().requires_grad_()  # as checkpointing makes it: a leaf over an activation
    assert held().parameters == rounded(64 * 64)
    assert held().activations == rounded(8 * 64)
    with torch.no_grad():
        z = plain * 2
    assert held().other == rounded(1000, 1000)
    del z, detached


def test_module_buffers_frozen_weights_and_shared_weights_are_parameters() -> None:
    norm = nn.BatchNorm1d(128).cuda().eval()
    tied = nn.Linear(128, 128, bias=False).cuda().requires_grad_(False)
    again = nn.Linear(128, 128, bias=False)
    again.weight = tied.weight
    assert held().parameters == rounded(128, 128, 128, 128, 1) - rounded(1) + rounded(1, itemsize=8) + rounded(128**2)
    assert held().total == held().parameters
    assert not norm.training


def test_a_tensor_that_was_on_the_host_when_one_last_looked() -> None:
    mean = torch.ones(256)
    gc.collect()
    assert held().inputs == 0
    mean.data = mean.data.cuda()
    assert held().inputs == rounded(256)
    mean.data = mean.data.cpu()
    assert held().inputs == 0


def test_devices_are_told_apart_and_a_machine_that_is_gone_is_not_counted() -> None:
    left = torch.ones(1000).cuda()
    right = torch.ones(5000).to("cuda:1")
    assert (held(0).inputs, held(1).inputs) == (rounded(1000), rounded(5000))
    lab.reset()
    assert held(0).total == held(1).total == 0
    del left, right


@settings(max_examples=8)
@given(
    st.lists(
        st.sampled_from(["make", "copy", "forward", "backward", "step", "zero", "drop", "view", "save"]), max_size=9
    )
)
def test_they_add_up_at_every_instant(acts: list[str]) -> None:
    """Inside ops, too: an allocation is looked at in the middle of every forward."""
    torch.cuda.empty_cache()
    model = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Dropout(), nn.Linear(64, 8)).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    for hook in (model[1].register_forward_hook, model[1].register_full_backward_hook):
        hook(lambda *_: held() and None)
    things: list[Any] = []
    for act in acts:
        if act == "make":
            things.append(torch.randn(100, 7, device="cuda"))
        elif act == "copy":
            things.append(torch.randn(16, 32).to("cuda", non_blocking=True))
        elif act == "forward":
            things.append(model(torch.ones(16, 32, device="cuda")).sum())
        elif act == "backward" and things and things[-1].grad_fn is not None:
            things.pop().sum().backward(retain_graph=True)  # a view of it may be there
        elif act == "step":
            optimizer.step()
        elif act == "zero":
            optimizer.zero_grad()
        elif act == "drop" and things:
            things.pop(0)
        elif act == "view" and things:
            things.append(things[-1].reshape(-1)[:1])
        elif act == "save":
            things.append(torch.randn(4, 4, device="cuda", requires_grad=True).exp())
        held()


def test_the_thread_that_waits_for_ranks_does_not_keep_them_from_looking() -> None:
    def program() -> int:
        weight = torch.ones(64, 64, device="cuda:1", requires_grad=True)
        (weight * 2).sum().backward()
        return held(1).gradients

    torch.ones(8, device="cuda:0")  # as a check does, or a cell before
    assert lab.run_ranks(program, 1) == [rounded(64 * 64)]


def test_a_rank_that_has_ended_does_not_keep_the_others_from_looking() -> None:
    """Its thread may live on for a moment: here, for half a second."""

    def linger(frame: FrameType, event: str, argument: object) -> None:
        if event == "return" and frame.f_code is threading.Thread.run.__code__:
            time.sleep(0.5)

    def program() -> int | None:
        if os.environ["RANK"] == "0":
            torch.ones(8, device="cuda:0")
            sys.setprofile(linger)
            return None
        weight = torch.ones(64, 64, device="cuda:1", requires_grad=True)
        (weight * 2).sum().backward()
        return held(1).gradients

    assert lab.run_ranks(program, 2)[1] == rounded(64 * 64)
