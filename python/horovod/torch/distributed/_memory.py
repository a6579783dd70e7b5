"""Views of the caller's tensors as contiguous memory of a dtype that the runtime has."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from horovod.torch._submission import DTYPES, check

#: A dtype without arithmetic in the runtime, whose tensors are moved as bytes.
_BYTES = torch.uint8


def check_device(tensor: torch.Tensor, doing: str) -> None:
    """Raises ValueError for a tensor that is not dense and in host memory."""
    if not isinstance(tensor, torch.Tensor) or not tensor.is_cpu:
        where = tensor.device if isinstance(tensor, torch.Tensor) else type(tensor).__name__
        raise ValueError(
            f"{doing}: the backend hvd moves tensors in host memory, this one is on {where}; copy "
            "it by cpu(), or use another backend for this device: with torch 2.14 and later, "
            'init_process_group("cpu:hvd,cuda:nccl")'
        )
    if tensor.layout is not torch.strided:
        check(tensor, doing)


def movable(tensor: torch.Tensor) -> torch.Tensor:
    """Returns the contiguous memory of `tensor` in one dimension, of a dtype that can be moved. A
    copy if the tensor is not contiguous."""
    flat = tensor.detach()
    if flat.is_complex() or flat.is_neg():
        flat = flat.resolve_conj().resolve_neg()
    if flat.dim() != 1 or not flat.is_contiguous():
        flat = flat.contiguous().view(-1)
    if flat.dtype in DTYPES:
        return flat
    return torch.view_as_real(flat).view(-1) if flat.is_complex() else flat.view(_BYTES)


def is_view(flat: torch.Tensor, tensor: torch.Tensor) -> bool:
    """Returns whether `flat`, made by `movable`, is the memory of `tensor`."""
    return tensor.numel() == 0 or flat.data_ptr() == tensor.data_ptr()


def restore(flat: torch.Tensor, tensor: torch.Tensor) -> None:
    """Copies `flat` to `tensor`, from which `movable` has made it, unless it is the same memory."""
    if is_view(flat, tensor):
        return
    if tensor.dtype not in DTYPES:
        flat = flat.view(tensor.dtype)
    tensor.detach().copy_(flat.view(tensor.shape))


def joined(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """Returns the memory of all tensors, one after the other, new memory if there are several."""
    flats = [movable(tensor) for tensor in tensors]
    return flats[0] if len(flats) == 1 else torch.cat(flats)


def count(tensor: torch.Tensor) -> int:
    """Returns the number of elements of `movable(tensor)`."""
    return tensor.numel() * _elements(tensor.dtype)


def _elements(dtype: torch.dtype) -> int:
    """Returns how many elements stand for one of `dtype`."""
    if dtype in DTYPES:
        return 1
    return 2 if dtype.is_complex else dtype.itemsize


def rows(flat: torch.Tensor, tensor: torch.Tensor) -> torch.Tensor:
    """Returns `flat`, made by `movable`, as rows of `tensor`. All ranks have rows of one length."""
    length = math.prod(tensor.shape[1:]) * _elements(tensor.dtype)
    return flat.view(tensor.shape[0] if tensor.dim() else 1, length)


def distribute(flat: torch.Tensor, tensors: Sequence[torch.Tensor]) -> None:
    """Copies consecutive parts of `flat` to `tensors`; the reverse of `joined`."""
    first = 0
    for tensor in tensors:
        restore(flat[first : first + count(tensor)], tensor)
        first += count(tensor)
