"""Compression of gradients before they are sent."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from horovod.common._compression import CastCompressor, Compressor, NoneCompressor

__all__ = ["BF16Compressor", "Compression", "Compressor", "FP16Compressor", "NoneCompressor"]


class _Cast(CastCompressor):
    @staticmethod
    def is_floating(dtype: Any) -> bool:
        return bool(dtype.is_floating)

    @staticmethod
    def cast(tensor: Any, dtype: Any) -> Any:
        return tf.cast(tensor, dtype)


class FP16Compressor(_Cast):
    """Sends floating-point tensors as float16: half the bytes of float32, largest value 65504."""

    dtype = tf.float16


class BF16Compressor(_Cast):
    """Sends floating-point tensors as bfloat16: half the bytes, range of float32, 8-bit
    precision."""

    dtype = tf.bfloat16


class Compression:
    """The available compressors: `none`, `fp16`, `bf16`."""

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor
