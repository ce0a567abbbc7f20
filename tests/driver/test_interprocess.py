"""Device tensors in other processes: CUDA's IPC, which shares memory instead of copying it."""

from __future__ import annotations

import gc
import io
import pickle
import sys
from multiprocessing.reduction import ForkingPickler

import pytest
import torch
import torch.multiprocessing as mp
from torch import nn
from torch.multiprocessing.reductions import reduce_tensor
from torch.nn.functional import mse_loss

import fakegpu_lab as lab

forks = pytest.mark.skipif(sys.platform == "win32", reason="Windows does not fork")


def here_and_back(value):
    """What a receiver gets, in this process: it opens the handle as another one does."""
    return pickle.loads(bytes(ForkingPickler.dumps(value)))


@pytest.fixture
def processes(monkeypatch):
    """As a script starts processes; another test may have made a shell."""
    monkeypatch.setattr("fakegpu_lab.ranks.launching.launchers.in_notebook", lambda: False)


# ------------------------------------------------------------ in one process


def test_a_received_tensor_is_the_senders_memory_and_takes_none_itself(machine):
    sent = torch.zeros(1024, 1024, device="cuda:1")
    view = sent[2:4, ::2]
    taken = torch.cuda.memory_allocated(1)
    received = here_and_back(sent)
    part = here_and_back(view)
    assert torch.cuda.memory_allocated(1) == taken
    received.fill_(3)
    assert sent.sum() == 3 * 1024 * 1024
    assert part.stride() == view.stride()
    part.zero_()
    assert sent.sum() == 3 * (1024 * 1024 - 2 * 512)
    assert received.device == torch.device("cuda:1")
    assert received.data_ptr() not in (0, sent.data_ptr())
    assert part.data_ptr() == received.data_ptr() + 2 * 1024 * 4
    assert part.untyped_storage()._cdata == received.untyped_storage()._cdata  # opened once


def test_the_values_stay_valid_without_the_sender(machine):
    received = here_and_back(torch.arange(5.0, device="cuda"))
    gc.collect()
    assert received.tolist() == [0, 1, 2, 3, 4]
    received.record_stream(torch.cuda.Stream())  # memory of another process: ignored, as in CUDACachingAllocator.cpp
    received.untyped_storage()
    with pytest.raises(RuntimeError, match="not resizable"):
        received.resize_(10)


def test_parameters_and_what_needs_a_gradient(machine):
    parameter = here_and_back(nn.Parameter(torch.ones(2, device="cuda")))
    assert isinstance(parameter, nn.Parameter)
    assert parameter.requires_grad
    leaf = here_and_back(torch.ones(2, device="cuda", requires_grad=True))
    assert leaf.requires_grad
    assert not isinstance(leaf, nn.Parameter)
    frozen = here_and_back(nn.Parameter(torch.ones(2, dtype=torch.long, device="cuda"), requires_grad=False))
    assert not frozen.requires_grad
    with pytest.raises(RuntimeError, match="Cowardly refusing to serialize non-leaf tensor which requires_grad"):
        ForkingPickler.dumps(leaf * 2)


def test_a_received_tensor_cannot_be_sent_on(machine):
    received = here_and_back(torch.ones(2, device="cuda"))
    with pytest.raises(RuntimeError, match="Attempted to send CUDA tensor received from another process"):
        ForkingPickler.dumps(received)
    assert here_and_back(received.clone()).tolist() == [1, 1]


@pytest.mark.filterwarnings("ignore:Sparse invariant checks", "ignore:Sparse CSR tensor support")
def test_sparse_and_empty_tensors(machine):
    sparse = torch.eye(3, device="cuda").to_sparse()
    assert here_and_back(sparse).to_dense().tolist() == torch.eye(3).tolist()
    assert here_and_back(torch.eye(3, device="cuda").to_sparse_csr()).to_dense().tolist() == torch.eye(3).tolist()
    empty = here_and_back(torch.ones(0, 4, device="cuda:1"))
    assert (empty.shape, empty.device) == ((0, 4), torch.device("cuda:1"))


def test_a_handle_that_a_program_carries_itself(machine):
    """As inference engines get weights from a trainer: `reduce_tensor`, and its function called elsewhere."""
    weight = torch.zeros(4, device="cuda")
    rebuild, arguments = reduce_tensor(weight)
    pickle.dump(arguments, io.BytesIO())
    rebuild(*arguments)[1] = 5
    assert weight.tolist() == [0, 5, 0, 0]


def test_sharing_is_nothing_to_do(machine):
    tensor = torch.ones(2, device="cuda")
    assert tensor.is_shared()
    assert tensor.share_memory_() is tensor
    model = nn.Linear(2, 2).cuda()
    assert model.share_memory() is model
    assert model.weight.is_shared()


def test_a_slice_of_a_storage(machine):
    bytes_ = torch.ones(16, dtype=torch.uint8, device="cuda").untyped_storage()[4:8]
    part = torch.empty(0, dtype=torch.uint8, device="cuda").set_(bytes_, 0, (4,))
    with pytest.raises(NotImplementedError, match="A slice of a storage cannot be sent to another process"):
        ForkingPickler.dumps(part)


def test_without_values():
    lab.enable("a100", compute="meta")
    received = here_and_back(torch.ones(3, 4, device="cuda"))
    assert (received.shape, received.device) == ((3, 4), torch.device("cuda:0"))
    assert torch.cuda.memory_allocated() == 0
    lab.disable()


def test_a_queue_moves_the_values_before_put_returns(machine):
    """Its thread pickles later, when this one may be computing with them."""
    tensors = {"model": nn.Linear(2, 2).cuda(), "more": [torch.zeros(2, device="cuda")]}
    queue = mp.get_context("spawn").Queue()
    addresses = lambda: [tensors["model"].weight._inner.data_ptr(), tensors["more"][0]._inner.data_ptr()]  # noqa: E731
    before = addresses()
    queue.put(tensors)
    after = addresses()
    assert not set(before) & set(after)
    queue.get(timeout=60)["more"][0].fill_(1)
    assert tensors["more"][0].tolist() == [1, 1]
    assert addresses() == after
    queue.close()
    queue.join_thread()


# ------------------------------------------------------------ in several


def _sends(queue, go):
    mine = torch.zeros(2, device="cuda:1")
    queue.put(mine)
    queue.put(mine)
    assert go.wait(60)
    queue.put(mine.tolist())


@forks
def test_a_child_sends_and_sees_what_the_parent_writes(machine):
    context = mp.get_context("fork")
    queue, go = context.SimpleQueue(), context.Event()
    child = context.Process(target=_sends, args=(queue, go))
    child.start()
    first, second = queue.get(), queue.get()
    assert first.data_ptr() == second.data_ptr()
    assert torch.cuda.memory_allocated(1) == 0
    first[1] = 7
    go.set()
    assert queue.get() == [0, 7]
    child.join()


def _receives(queue, answers):
    try:
        queue.get()
    except RuntimeError as error:
        answers.put(str(error))


@forks
def test_a_forked_child_of_a_process_that_used_cuda_cannot_receive(machine):
    context = mp.get_context("fork")
    queue, answers = context.SimpleQueue(), context.SimpleQueue()
    child = context.Process(target=_receives, args=(queue, answers))
    tensor = torch.ones(2, device="cuda")
    child.start()
    queue.put(tensor)
    assert "Cannot re-initialize CUDA in forked subprocess" in answers.get()
    child.join()


def _child(rank, on_host, on_device, parameter, queue):
    assert torch.cuda.device_count() == 2
    assert on_device.device == torch.device("cuda:1")
    assert isinstance(parameter, nn.Parameter)
    assert torch.cuda.memory_allocated() == torch.cuda.memory_allocated(1) == 0
    queue.put((on_host.to("cuda:1") + on_device + parameter.to("cuda:1")).tolist())
    on_device.zero_()
    with torch.no_grad():
        parameter.add_(1)


def test_spawned_processes_have_the_machine_and_share_its_memory(machine, processes):
    """One process for all that is asked of spawning: they take seconds to start."""
    queue = mp.get_context("spawn").SimpleQueue()
    on_host, on_device = torch.ones(2), torch.full((2,), 10.0, device="cuda:1")
    parameter = nn.Parameter(torch.full((2,), 100.0, device="cuda"))
    mp.spawn(_child, args=(on_host, on_device, parameter, queue), nprocs=1)
    assert queue.get() == [111, 111]
    assert on_device.tolist() == [0, 0]
    assert parameter.tolist() == [101, 101]


def _train(rank, model, inputs, targets):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(20):
        optimizer.zero_grad()
        mse_loss(model(inputs), targets).backward()
        optimizer.step()


@pytest.mark.long
def test_hogwild_trains_the_parents_model(machine, processes):
    """As mnist_hogwild of pytorch/examples with --cuda: processes train one model without locks."""
    torch.manual_seed(0)
    model = nn.Linear(4, 1).cuda()
    model.share_memory()
    inputs = torch.randn(64, 4, device="cuda")
    targets = inputs.sum(1, keepdim=True)
    before = mse_loss(model(inputs), targets).item()
    mp.spawn(_train, args=(model, inputs, targets), nprocs=2)
    assert mse_loss(model(inputs), targets).item() < 0.1 * before
