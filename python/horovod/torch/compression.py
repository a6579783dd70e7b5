"""Making gradients smaller before they travel, and large again afterwards."""

from __future__ import annotations

from typing import Any

import torch

from horovod.common._compression import CastCompressor, Compressor, NoneCompressor

__all__ = ["BF16Compressor", "Compression", "Compressor", "FP16Compressor", "NoneCompressor"]


class _Cast(CastCompressor):
    @staticmethod
    def is_floating(dtype: Any) -> bool:
        return bool(dtype.is_floating_point)

    @staticmethod
    def cast(tensor: Any, dtype: Any) -> Any:
        return tensor.to(dtype)


class FP16Compressor(_Cast):
    """Sends floating tensors as float16: half the bytes, largest value 65504. Others pass."""

    dtype = torch.float16


class BF16Compressor(_Cast):
    """Sends floating tensors as bfloat16: half the bytes, range of float32, 8 bits of precision."""

    dtype = torch.bfloat16


class Compression:
    """The compressors to choose from."""

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor
