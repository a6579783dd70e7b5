"""Tensors as pickle writes them to the state folder: their bytes, without a copy."""

from __future__ import annotations

import ctypes
import pickle
from typing import Any

import torch


class _Packed:
    """Unpickles to a tensor in host memory."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self._tensor = tensor.detach().cpu().contiguous()

    def __reduce__(self) -> Any:
        tensor = self._tensor
        size = tensor.numel() * tensor.element_size()
        memory = pickle.PickleBuffer((ctypes.c_char * size).from_address(tensor.data_ptr()))
        name = str(tensor.dtype).removeprefix("torch.")
        return _unpacked, (name, tuple(tensor.shape), memory)


def _unpacked(dtype: str, shape: tuple[int, ...], memory: bytearray) -> torch.Tensor:
    flat = torch.frombuffer(memory, dtype=torch.uint8)
    return flat.view(getattr(torch, dtype)).reshape(shape)


def packed(tensor: torch.Tensor) -> tuple[int, Any] | None:
    """Returns the number of bytes, and what is pickled in place of the tensor. None for kinds of
    tensors that are more than bytes, such as sparse ones, and for empty ones."""
    if tensor.layout != torch.strided or tensor.is_quantized or tensor.numel() == 0:
        return None
    plain = tensor.resolve_conj().resolve_neg()
    return plain.numel() * plain.element_size(), _Packed(plain)
