"""Sparse tensors over the backend "hvd" of torch.distributed, compared with gloo."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist
from ranks import on_ranks
from test_torch_distributed import both, same_as_gloo
from torch.nn.parallel import DistributedDataParallel

import horovod.torch as hvd
from horovod.common.exceptions import HorovodMismatchError


def sparse(indices: list[Any], values: torch.Tensor, *shape: int) -> torch.Tensor:
    places = torch.tensor(indices, dtype=torch.int64)
    return torch.sparse_coo_tensor(places, values, shape, check_invariants=True)


def of_this_rank(dtype: torch.dtype) -> list[torch.Tensor]:
    """With other numbers of values on each rank; one has rows, one names a place twice."""
    rank = hvd.rank()
    rows = torch.arange(2 * (rank + 1)).view(rank + 1, 2).to(dtype)
    return [
        sparse([[*range(rank)]], torch.ones(rank, dtype=dtype), 4),
        sparse([[*range(rank + 1)]], rows, 5, 2),
        sparse([[0, rank, rank], [1, 2, 2]], torch.ones(3, dtype=dtype), 3, 3),
    ]


@on_ranks(2, 3)
def test_sums_are_those_of_gloo() -> None:
    for dtype in (torch.float32, torch.float64, torch.int64):
        for number in range(len(of_this_rank(dtype))):

            def reduce(group: Any, dtype: torch.dtype = dtype, number: int = number) -> Any:
                tensor = of_this_rank(dtype)[number]
                dist.all_reduce(tensor, group=group)
                return tensor.to_dense()

            same_as_gloo(both(), reduce)


@on_ranks(2, 3)
def test_a_sum_may_be_asynchronous() -> None:
    both()
    tensor = sparse([[hvd.rank()]], torch.ones(1), 4)
    work = dist.all_reduce(tensor, async_op=True)
    after = torch.ones(2)
    dist.all_reduce(after)
    work.wait()
    assert tensor.to_dense().tolist() == [1] * hvd.size() + [0] * (4 - hvd.size())
    assert after.tolist() == [hvd.size()] * 2


@on_ranks(2, 3)
def test_shapes_that_differ_name_the_ranks() -> None:
    both()
    last = hvd.size() - 1
    tensor = sparse([[0]], torch.ones(1), 5 if hvd.rank() == last else 4)
    with pytest.raises(HorovodMismatchError, match=rf"shape \[4\] .* rank {last} .* shape \[5\]"):
        dist.all_reduce(tensor)


@on_ranks(2)
def test_what_cannot_be_summed_is_refused() -> None:
    both()
    tensor = sparse([[0]], torch.ones(1), 4)
    with pytest.raises(ValueError, match=r"ReduceOp.MAX of torch.float32 is not supported"):
        dist.all_reduce(tensor, dist.ReduceOp.MAX)
    with pytest.raises(ValueError, match=r"torch.bool"):
        dist.all_reduce(sparse([[0]], torch.ones(1, dtype=torch.bool), 4))


@on_ranks(2, 3)
def test_ddp_trains_sparse_embeddings_as_over_gloo() -> None:
    def train(group: Any) -> torch.Tensor:
        torch.manual_seed(3)
        words = torch.nn.Embedding(6, 2, sparse=True)
        wrapped = DistributedDataParallel(words, process_group=group)
        optimizer = torch.optim.SGD(words.parameters(), lr=0.1)
        for step in range(3):
            optimizer.zero_grad()
            wrapped(torch.tensor([hvd.rank(), step])).square().sum().backward()
            optimizer.step()
        return words.weight.detach()

    ours, theirs = (train(group) for group in both())
    torch.testing.assert_close(ours, theirs)
