"""Storages of device tensors."""

from __future__ import annotations

import pickle

import pytest
import torch

import fakegpu_lab as lab


def allocated(index: int = 0) -> int:
    return torch.cuda.memory_allocated(index)


def test_storage_answers_for_its_device(machine):
    tensor = torch.arange(6.0, device="cuda:1").reshape(2, 3)
    storage = tensor.untyped_storage()
    assert storage.device == torch.device("cuda:1")
    assert storage.is_cuda
    assert storage.nbytes() == storage.size() == len(storage) == 24
    assert storage.data_ptr() == tensor.data_ptr() != 0
    assert storage.is_shared()
    assert storage.share_memory_() is storage
    assert tensor.share_memory_().is_shared()
    assert torch.is_storage(storage)
    assert isinstance(storage, torch.UntypedStorage)
    assert str(type(storage)) == "<class 'torch.storage.UntypedStorage'>"


def test_tensors_that_share_a_storage_have_the_same_one(machine):
    tensor = torch.ones(2, 3, device="cuda")
    other = torch.ones(2, 3, device="cuda")
    assert tensor.untyped_storage() is tensor[1].t().untyped_storage()
    assert tensor.untyped_storage()._cdata == tensor.view(-1).untyped_storage()._cdata
    assert tensor.untyped_storage()._cdata != other.untyped_storage()._cdata


@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")
def test_typed_storage(machine):
    tensor = torch.arange(3.0, device="cuda")
    storage = tensor.storage()
    assert storage.device == torch.device("cuda:0")
    assert storage.dtype is torch.float32
    assert storage.data_ptr() == tensor.data_ptr()
    assert storage.tolist() == [0.0, 1.0, 2.0]


def test_repr(machine):
    assert repr(torch.zeros(1, device="cuda").untyped_storage()) == (
        " 0\n 0\n 0\n 0\n[torch.storage.UntypedStorage(device=cuda:0) of size 4]"
    )


def test_a_storage_can_be_emptied_and_filled_again(machine):
    """What FSDP does with the flat parameters of a layer."""
    before = allocated()
    tensor = torch.ones(1 << 20, device="cuda")
    storage = tensor.untyped_storage()
    storage.resize_(0)
    assert allocated() == before
    assert storage.nbytes() == tensor.data_ptr() == 0
    assert tensor.shape == (1 << 20,)
    storage.resize_(4 << 20)
    assert allocated() == before + (4 << 20)
    assert tensor.fill_(2).sum().item() == 2 << 20


def test_growing_a_storage_beyond_the_card_is_out_of_memory(machine):
    storage = torch.ones(3, device="cuda").untyped_storage()
    with pytest.raises(torch.OutOfMemoryError, match=r"Tried to allocate 8\.00 GiB"):
        storage.resize_(8 << 30)
    assert storage.nbytes() == 12


def test_copies_between_storages_are_transfers(machine):
    ledger = machine.devices[0].ledger
    storage = torch.arange(4.0, device="cuda").untyped_storage()
    host_to_device, device_to_host = ledger.h2d_bytes, ledger.d2h_bytes
    host = storage.cpu()
    assert host.device.type == "cpu"
    assert ledger.d2h_bytes - device_to_host == 16
    back = host.cuda()
    assert back.device == torch.device("cuda:0")
    assert ledger.h2d_bytes - host_to_device == 16
    assert back.tolist() == storage.tolist()
    there = storage.to(device="cuda:1")
    assert there.device == torch.device("cuda:1")
    assert ledger.p2p_sent_bytes == 16
    assert storage.to(device=torch.device("cuda:0")) is storage
    assert storage.clone()._cdata != storage._cdata


def test_reading_and_writing_elements(machine):
    storage = torch.UntypedStorage(4, device="cuda:1")
    assert storage.device == torch.device("cuda:1")
    storage.fill_(7)
    storage[1] = 3
    assert storage.tolist() == [7, 3, 7, 7]
    part = storage[1:3]
    assert part.device == torch.device("cuda:1")
    assert part.data_ptr() == storage.data_ptr() + 1
    part[0] = 9
    assert storage[1] == 9


def test_a_new_storage_takes_device_memory(machine):
    before = allocated()
    storage = torch.UntypedStorage(1 << 20, device="cuda")
    assert allocated() == before + (1 << 20)
    del storage
    assert allocated() == before
    assert torch.UntypedStorage(3).device.type == "cpu"


def test_set_makes_a_view(machine):
    tensor = torch.arange(6.0, device="cuda:1")
    before = allocated(1)
    view = torch.empty(0, device="cuda:1").set_(tensor.untyped_storage(), 1, (2, 2), (1, 2))
    assert view.tolist() == [[1, 3], [2, 4]]
    assert view.data_ptr() == tensor.data_ptr() + 4
    same = torch.empty(0, device="cuda:1").set_(tensor)
    assert same.untyped_storage() is tensor.untyped_storage()
    view.zero_()
    assert same.tolist() == [0, 0, 0, 0, 0, 5]
    address = tensor.data_ptr()
    del tensor, same
    assert view.data_ptr() == address + 4
    assert allocated(1) == before


def test_set_takes_the_storage_of_its_own_device_only(machine):
    on_device = torch.ones(2, device="cuda:1")
    sentence = (
        'Attempted to set the storage of a tensor on device "{}" to a storage on different device "{}".  '
        "This is no longer allowed; the devices must match."
    )
    for target, source in (("cpu", "cuda:1"), ("cuda:0", "cuda:1"), ("cuda:1", "cpu")):
        holder = on_device if source == "cuda:1" else torch.ones(2)
        for given in (holder, holder.untyped_storage()):
            with pytest.raises(RuntimeError) as raised:
                torch.empty(0, device=target).set_(given)
            assert str(raised.value) == sentence.format(target, source)


def test_a_storage_of_a_machine_that_is_gone_says_so():
    lab.enable("a100")
    tensor = torch.ones(3, device="cuda")
    storage = tensor.untyped_storage()
    lab.disable()
    for use in (storage.cpu, lambda: storage[0], lambda: storage.resize_(0), lambda: pickle.dumps(tensor)):
        with pytest.raises(RuntimeError, match="which is gone"):
            use()
    assert "__new__" not in vars(torch.UntypedStorage)
    assert torch.UntypedStorage(3).nbytes() == 3


def test_storages_without_values_are_copied_but_not_read():
    lab.enable("a100:2", compute="meta")
    try:
        tensor = torch.ones(3, device="cuda")
        storage = tensor.untyped_storage()
        assert storage.to(device="cuda:1").nbytes() == 12
        storage.resize_(0)
        assert tensor.data_ptr() == 0
        for read in (storage.cpu, lambda: torch.ones(3, device="cuda").untyped_storage()[0]):
            with pytest.raises(RuntimeError, match='compute="meta"'):
                read()
    finally:
        lab.disable()


def test_a_device_storage_s_type_makes_storages_of_the_host(machine):
    there = torch.arange(4.0, device="cuda").untyped_storage()
    for here in (type(there)(there.size()), type(there)(there.size(), device="cpu")):
        here.copy_(there)  # as torch.distributed.checkpoint stages a state dict
        assert here.device == torch.device("cpu")
        assert torch.empty(0).set_(here, 0, (4,)).tolist() == [0, 1, 2, 3]
