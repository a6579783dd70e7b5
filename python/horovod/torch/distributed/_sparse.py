"""The sum of sparse tensors. Each rank has values at other places, so ranks gather them all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from horovod.common.exceptions import HorovodMismatchError
from horovod.torch._submission import DTYPES
from horovod.torch.distributed import _memory
from horovod.torch.distributed._reductions import name_of


class Form(NamedTuple):
    """What ranks must agree on, and how many values one of them has."""

    values: int
    sparse_dim: int
    shape: tuple[int, ...]

    @staticmethod
    def of(tensor: torch.Tensor) -> Form:
        """`tensor`: coalesced."""
        return Form(tensor._nnz(), tensor.sparse_dim(), tuple(tensor.shape))

    @staticmethod
    def read(numbers: torch.Tensor) -> Form:
        """`numbers`: as `numbers()` of another rank has made them."""
        values, sparse_dim, *shape = numbers.tolist()
        return Form(values, sparse_dim, tuple(shape))

    def numbers(self) -> torch.Tensor:
        return torch.tensor([self.values, self.sparse_dim, *self.shape])


def check(tensor: torch.Tensor, reduction: Any, doing: str) -> None:
    """Raises ValueError for what cannot be summed."""
    name = name_of(reduction)
    if not tensor.is_cpu or tensor.dtype not in DTYPES:
        raise ValueError(
            f"{doing}: a sparse tensor must be in host memory and have a dtype that can be "
            f"reduced, this one has {tensor.dtype} on {tensor.device}; see to_dense()"
        )
    if name != "SUM" or tensor.dtype is torch.bool:
        raise ValueError(
            f"{doing}: sparse tensors can be summed, but ReduceOp.{name} of {tensor.dtype} is not "
            "supported; see to_dense()"
        )


def check_same(forms: Sequence[Form], ranks: Sequence[int], doing: str) -> None:
    """Raises HorovodMismatchError, on all ranks, unless all tensors have one shape."""
    for rank, form in zip(ranks, forms, strict=True):
        if form[1:] != forms[0][1:]:
            raise HorovodMismatchError(
                f"{doing}: rank {ranks[0]} has a sparse tensor of shape {list(forms[0].shape)} "
                f"with {forms[0].sparse_dim} sparse dimensions, rank {rank} one of shape "
                f"{list(form.shape)} with {form.sparse_dim}"
            )


def padded(tensor: torch.Tensor, longest: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns indices [longest, sparse_dim] and values [longest, ...] of a coalesced tensor; what
    is behind its own has no meaning."""
    count = tensor._nnz()
    indices = torch.zeros(longest, tensor.sparse_dim(), dtype=torch.int64)
    values = tensor.values().new_zeros(longest, *tensor.shape[tensor.sparse_dim() :])
    indices[:count] = tensor.indices().t()
    values[:count] = tensor.values()
    return indices, values


def gathered(part: torch.Tensor, size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns what is sent for a part of `padded`, and memory for the parts of all ranks."""
    flat = _memory.movable(part)
    return flat, flat.new_empty(size * flat.numel())


def summed(
    forms: Sequence[Form], indices: torch.Tensor, values: torch.Tensor, like: torch.Tensor
) -> torch.Tensor:
    """Returns the sum. `indices`, `values`: of all ranks, as `gathered` has made their memory.
    `like`: the values of this rank."""
    longest = max(form.values for form in forms)
    first = forms[0]
    every = values.view(len(forms), longest, *like.shape[1:])
    places = indices.view(len(forms), longest, first.sparse_dim)
    counts = [form.values for form in forms]
    return torch.sparse_coo_tensor(
        torch.cat([p[:n] for p, n in zip(places, counts, strict=True)]).t(),
        torch.cat([v[:n] for v, n in zip(every, counts, strict=True)]),
        first.shape,
        check_invariants=False,
    ).coalesce()
