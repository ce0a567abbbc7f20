"""Sparse tensors on a device: where they are, what they compute, what memory they take."""

from __future__ import annotations

import copy
import io

import pytest
import torch
from torch import nn

pytestmark = [
    pytest.mark.filterwarnings("ignore:Sparse (CSR|CSC|BSR|BSC) tensor support"),
    pytest.mark.filterwarnings("ignore:Sparse invariant checks"),
]

INDICES = torch.tensor([[0, 1, 1], [2, 0, 2]])
VALUES = torch.tensor([3.0, 4.0, 5.0])
DENSE = [[0, 0, 3], [4, 0, 5]]


def _coo(device: str = "cuda") -> torch.Tensor:
    return torch.sparse_coo_tensor(INDICES, VALUES, (2, 3), device=device)


def _csr(device: str = "cuda") -> torch.Tensor:
    return torch.sparse_csr_tensor(torch.tensor([0, 1, 3]), INDICES[1], VALUES, (2, 3), device=device)


@pytest.mark.parametrize(
    "make",
    [
        _coo,
        lambda: torch.sparse_coo_tensor(INDICES.tolist(), VALUES.tolist(), device="cuda"),
        lambda: torch.sparse_coo_tensor(INDICES.cuda(), VALUES.cuda(), (2, 3)),
        lambda: _coo("cpu").cuda(),
        lambda: torch.tensor(DENSE, device="cuda").float().to_sparse(),
        _csr,
        lambda: _csr("cpu").to("cuda"),
        lambda: torch.tensor(DENSE, device="cuda").float().to_sparse_csr(),
        lambda: torch.tensor(DENSE, device="cuda").float().to_sparse_csc(),
        lambda: torch.tensor(DENSE, device="cuda").float().to_sparse_bsr((1, 3)),
        lambda: torch.tensor(DENSE, device="cuda").float().to_sparse_bsc((2, 1)),
    ],
)
def test_made_anyhow_it_is_on_the_device(machine, make):
    sparse = make()
    assert (sparse.device, sparse.is_cuda, sparse.shape) == (torch.device("cuda:0"), True, (2, 3))
    assert sparse.to_dense().tolist() == DENSE
    assert sparse.to_dense().is_cuda
    assert (sparse * 2).cpu().to_dense().tolist() == (torch.tensor(DENSE) * 2).tolist()
    assert sparse.to("cuda:1").device == torch.device("cuda:1")
    assert repr(sparse).startswith("tensor(")
    assert "device='cuda:0'" in repr(sparse)


def test_parts_are_on_the_device(machine):
    coo = _coo()
    with pytest.raises(RuntimeError, match="Cannot get indices on an uncoalesced tensor"):
        coo.indices()
    coo = coo.coalesce()
    assert coo.is_coalesced()
    assert coo.indices().device == coo.values().device == torch.device("cuda:0")
    assert coo.values().tolist() == VALUES.tolist()
    csr = _csr("cuda:1")
    assert {csr.crow_indices().device, csr.col_indices().device, csr.values().device} == {torch.device("cuda:1")}
    assert (coo.layout, csr.layout, coo.is_sparse, csr.is_sparse_csr) == (
        torch.sparse_coo,
        torch.sparse_csr,
        True,
        True,
    )


def test_empty_ones(machine):
    for empty in (
        torch.sparse_coo_tensor(size=(2, 3), device="cuda"),
        torch.zeros(2, 3, layout=torch.sparse_coo, device="cuda"),
        torch.empty(2, 3, layout=torch.sparse_csr, device="cuda"),
    ):
        assert (empty._nnz(), empty.is_cuda) == (0, True)


OPS = {
    "mm": lambda s, d: torch.sparse.mm(s, d),
    "at": lambda s, d: s @ d,
    "mv": lambda s, d: s @ d[:, 0],
    "addmm": lambda s, d: torch.addmm(d[:2], s, d),
    "sum": lambda s, d: s.sum(),
    "transposed": lambda s, d: s.t().to_dense(),
    "scaled": lambda s, d: (s * 3).to_dense(),
}
COO_OPS = {
    "sparse.sum": lambda s, d: torch.sparse.sum(s, dim=0).to_dense(),
    "softmax": lambda s, d: torch.sparse.softmax(s, 1).to_dense(),
    "sum of two": lambda s, d: (s + s).to_dense(),
    "with dense": lambda s, d: torch.ones_like(d).t()[:2, :3] + s if d.shape[1] == 3 else s.to_dense(),
    "sparse-sparse": lambda s, d: torch.sparse.mm(s, s.t()).to_dense(),
    "cat": lambda s, d: torch.cat([s, s]).to_dense(),
    "row": lambda s, d: s[1].to_dense(),
    "mask": lambda s, d: torch.ones_like(s.to_dense()).sparse_mask(s.coalesce()).to_dense(),
}


@pytest.mark.parametrize(
    ("make", "name"), [(_coo, name) for name in {**OPS, **COO_OPS}] + [(_csr, name) for name in OPS]
)
def test_ops_agree_with_the_cpu(machine, make, name):
    op = {**OPS, **COO_OPS}[name]
    dense = torch.arange(6.0).reshape(3, 2)
    result = op(make("cuda"), dense.cuda())
    assert result.is_cuda
    torch.testing.assert_close(result.cpu(), op(make("cpu"), dense))


def test_gradients(machine):
    weight = torch.arange(6.0, device="cuda").reshape(3, 2).requires_grad_()
    values = VALUES.cuda().requires_grad_()
    sparse = torch.sparse_coo_tensor(INDICES.cuda(), values, (2, 3))
    torch.sparse.mm(sparse, weight).sum().backward()
    assert values.grad.tolist() == [9, 1, 9]
    assert weight.grad.tolist() == [[4, 4], [0, 0], [8, 8]]
    leaf = _coo().requires_grad_()
    torch.sparse.mm(leaf, weight.detach()).sum().backward()
    assert (leaf.grad.is_sparse, leaf.grad.is_cuda) == (True, True)
    dense = torch.eye(3, device="cuda", requires_grad=True)
    (dense.to_sparse_csr() @ torch.ones(3, 2, device="cuda")).sum().backward()
    assert dense.grad.is_cuda


@pytest.mark.parametrize("to_sparse", ["to_sparse", "to_sparse_csr", "to_sparse_csc"])
def test_gradients_through_conversions_are_checked(machine, to_sparse):
    dense = torch.rand(3, 3, device="cuda", dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: getattr(x, to_sparse)().to_dense(), dense)
    sparse = getattr(dense.detach(), to_sparse)().requires_grad_()
    assert torch.autograd.gradcheck(lambda x: x.to_dense(masked_grad=True), sparse, masked=True)


@pytest.mark.parametrize("to_sparse", [lambda x: x.to_sparse_csr(), lambda x: x.to_sparse_bsr((1, 3))])
def test_gradients_of_the_values_of_a_compressed_tensor(machine, to_sparse):
    dense = torch.tensor(DENSE).float()
    there, host = to_sparse(dense.cuda()).requires_grad_(), to_sparse(dense).requires_grad_()
    (grad,) = torch.autograd.grad(there.values().square().sum(), there)
    (expected,) = torch.autograd.grad(host.values().square().sum(), host)
    assert (grad.device, grad.layout) == (there.device, there.layout)
    assert grad.to_dense().tolist() == expected.to_dense().tolist()


def test_what_is_said_to_be_coalesced_is_checked(machine):
    def coo(indices):
        return torch.sparse_coo_tensor(
            indices.cuda(), VALUES.cuda().requires_grad_(), (2, 3), is_coalesced=True, check_invariants=True
        )

    assert coo(INDICES).is_coalesced()
    assert coo(INDICES).requires_grad
    with pytest.raises(RuntimeError, match="cannot set is_coalesced to true if indices correspond to uncoalesced COO"):
        coo(INDICES.flip(1))


@pytest.mark.parametrize("optimizer", [torch.optim.SparseAdam, torch.optim.SGD, torch.optim.Adagrad])
def test_a_sparse_embedding_trains_as_on_the_cpu(machine, optimizer):
    torch.manual_seed(0)
    host = nn.Embedding(10, 3, sparse=True)
    device = copy.deepcopy(host).cuda()
    ids = torch.tensor([1, 1, 2])
    for embedding, batch in ((host, ids), (device, ids.cuda())):
        step = optimizer(list(embedding.parameters()), lr=0.1)
        for _ in range(3):
            step.zero_grad()
            embedding(batch).pow(2).sum().backward()
            embedding(batch).sum().backward()  # the two gradients are added
            assert embedding.weight.grad.is_sparse
            step.step()
    torch.testing.assert_close(device.weight.cpu(), host.weight)


def test_memory_is_that_of_the_parts(machine):
    count = 100_000
    indices, values = torch.randint(0, 1000, (2, count), device="cuda"), torch.randn(count, device="cuda")
    before = torch.cuda.memory_allocated()
    sparse = torch.sparse_coo_tensor(indices, values, (1000, 1000))
    assert torch.cuda.memory_allocated() == before  # made of the same memory
    del indices, values
    assert torch.cuda.memory_allocated() == before
    part = sparse._values()
    del sparse
    assert torch.cuda.memory_allocated() == before - 1_600_000  # the indices are gone
    del part
    assert torch.cuda.memory_allocated() == before - 2_000_384  # in blocks of 512 bytes


def test_memory_of_copies_and_accumulated_gradients(machine):
    before = torch.cuda.memory_allocated()
    sparse = torch.sparse_coo_tensor(torch.arange(2000).reshape(2, 1000), torch.ones(1000)).cuda()
    assert torch.cuda.memory_allocated() - before == 16384 + 4096
    other = sparse.clone()
    other += sparse
    assert torch.cuda.memory_allocated() - before >= 2 * (16384 + 4096)
    assert other._nnz() == 1000 or other._values().numel() == 2000
    del sparse, other
    assert torch.cuda.memory_allocated() == before


def test_a_matrix_too_big_to_be_dense(machine):
    sparse = torch.sparse_coo_tensor(INDICES, VALUES, (1_000_000, 1_000_000), device="cuda")
    with pytest.raises(torch.OutOfMemoryError, match=r"Tried to allocate 3725.29 GiB"):
        sparse.to_dense()


def test_saved_copied_and_sent(machine):
    for sparse in (_coo().coalesce(), _csr()):
        file = io.BytesIO()
        torch.save(sparse, file)
        file.seek(0)
        loaded = torch.load(file)
        assert (loaded.layout, loaded.device) == (sparse.layout, sparse.device)
        file.seek(0)
        assert torch.load(file, map_location="cpu").device.type == "cpu"
        assert copy.deepcopy(sparse).to_dense().tolist() == DENSE


def test_graph_convolution(machine):
    """A layer as tutorials write it: a normalised adjacency matrix times features."""
    edges = torch.randint(0, 100, (2, 500))
    adjacency = torch.sparse_coo_tensor(edges, torch.ones(500), (100, 100)).to("cuda").coalesce()
    degree = torch.sparse.sum(adjacency, dim=1).to_dense()
    diagonal = torch.arange(100, device="cuda").repeat(2, 1)
    scale = torch.sparse_coo_tensor(diagonal, degree.clamp(min=1).rsqrt(), (100, 100))
    normalised = torch.sparse.mm(torch.sparse.mm(scale, adjacency), scale)
    layer = nn.Linear(16, 4).cuda()
    features = torch.randn(100, 16, device="cuda")
    out = torch.sparse.mm(normalised, layer(features))
    out.square().mean().backward()
    assert layer.weight.grad.is_cuda
    torch.testing.assert_close(out, normalised.to_dense() @ layer(features))


@pytest.mark.usefixtures("machine")
def test_out_takes_a_sparse_result_of_any_shape() -> None:
    source = torch.eye(3, device="cuda").to_sparse()
    out = torch.zeros(5, 5, layout=torch.sparse_coo, device="cuda")
    assert torch.neg(source, out=out) is out
    assert out.shape == (3, 3)
    assert out.to_dense().tolist() == (-torch.eye(3)).tolist()
    torch.div(source, 2, rounding_mode="floor", out=out)
    with pytest.raises(RuntimeError, match=r"^result type Float can't be cast to the desired output type Int$"):
        torch.asin(source.int(), out=source.int())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.usefixtures("machine")
def test_half_precision_adds(dtype: torch.dtype) -> None:
    dense = torch.rand(4, 4, device="cuda", dtype=dtype)
    source = dense.to_sparse()
    total = source + source
    assert total.dtype is dtype
    torch.testing.assert_close(total.to_dense(), dense + dense)
    source -= total
    torch.testing.assert_close(source.to_dense(), -dense)
    with pytest.raises(RuntimeError, match=r"^Can't convert result type"):
        source.int().add_(source)
    with pytest.raises(RuntimeError, match=r"is not supported\. Use add"):
        source + 1
    twice = torch.sparse_coo_tensor([[0, 0]], dense[:2], (4, 4), check_invariants=False)
    assert (twice + twice)._nnz() == 4  # nothing is added up before coalesce()


@pytest.mark.usefixtures("machine")
def test_a_sum_with_an_empty_one_is_a_copy() -> None:
    many = torch.sparse_coo_tensor(torch.zeros(1, 20, dtype=torch.long), torch.ones(20), (1,), device="cuda")
    none = torch.sparse_coo_tensor((1,), device="cuda")
    for one, coalesced in ((many, False), (many.coalesce(), True)):
        for total in (one + none, none + one):
            assert (total._nnz(), total.is_coalesced()) == (one._nnz(), coalesced)
    assert (many + many)._nnz() == 1  # more entries than elements: summed at once


@pytest.mark.usefixtures("machine")
def test_products_of_booleans_and_of_halves_are_refused() -> None:
    """The CPU has no kernels for them."""
    mask = torch.tensor([[True, False], [False, True]], device="cuda").to_sparse()
    half = torch.rand(2, 2, device="cuda", dtype=torch.float16).to_sparse()
    for multiply in (lambda: mask * mask, lambda: torch.sparse.mm(half, half)):
        with pytest.raises(NotImplementedError, match="Convert them to float32 first"):
            multiply()


@pytest.mark.usefixtures("machine")
def test_random_numbers_like_a_compressed_tensor() -> None:
    source = torch.eye(4, device="cuda").to_sparse_bsr((2, 2))
    like = torch.randn_like(source)
    assert like.layout is torch.sparse_bsr
    assert like.values().std() > 0


@pytest.mark.usefixtures("machine")
def test_a_tensor_without_elements_is_on_the_device_it_names() -> None:
    assert torch.sparse_coo_tensor(size=(2, 2), device="cuda:1").device == torch.device("cuda:1")  # type: ignore[call-arg]
    with torch.device("cuda:1"):
        assert torch.sparse_coo_tensor(size=(2, 2)).device == torch.device("cuda:1")  # type: ignore[call-arg]


@pytest.mark.usefixtures("machine")
def test_a_dense_tensor_on_the_host_is_refused_in_cudas_words() -> None:
    with pytest.raises(RuntimeError, match=r"^add: expected 'self' to be a CUDA tensor, but got a CPU tensor$"):
        torch.ones(3, 3) + torch.eye(3, device="cuda").to_sparse()


@pytest.mark.usefixtures("machine")
def test_large_sparse_operands_have_no_bytes_of_their_own() -> None:
    large = torch.eye(300, device="cuda").to_sparse()  # 360,000 bytes, if it were dense
    assert (torch.ones(300, 300, device="cuda") + large).sum().item() == 300 * 301
