"""Compression of gradients before they are sent."""

from __future__ import annotations

from typing import Any

import numpy as np

from horovod.common._compression import CastCompressor, Compressor, NoneCompressor

__all__ = ["Compression", "Compressor", "FP16Compressor", "NoneCompressor"]


class FP16Compressor(CastCompressor):
    """Sends floating-point arrays as float16: half the bytes of float32, largest value 65504."""

    dtype = np.float16

    @staticmethod
    def is_floating(dtype: Any) -> bool:
        return bool(np.issubdtype(np.dtype(dtype), np.floating))

    @staticmethod
    def cast(tensor: Any, dtype: Any) -> Any:
        return tensor.astype(dtype)


class Compression:
    """The available compressors: `none`, `fp16`."""

    none = NoneCompressor
    fp16 = FP16Compressor
