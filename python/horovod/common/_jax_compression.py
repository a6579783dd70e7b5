"""Compression of JAX arrays before they are sent; for horovod.jax, and for Keras on JAX."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from horovod.common._compression import CastCompressor, Compressor, NoneCompressor

__all__ = ["BF16Compressor", "Compression", "Compressor", "FP16Compressor", "NoneCompressor"]


class _Cast(CastCompressor):
    @staticmethod
    def is_floating(dtype: Any) -> bool:
        return bool(jnp.issubdtype(dtype, jnp.floating))

    @staticmethod
    def cast(tensor: Any, dtype: Any) -> Any:
        return tensor.astype(dtype)


class FP16Compressor(_Cast):
    """Sends floating-point arrays as float16: half the bytes of float32, largest value 65504."""

    dtype = jnp.float16


class BF16Compressor(_Cast):
    """Sends floating-point arrays as bfloat16: half the bytes, range of float32, 8-bit
    precision."""

    dtype = jnp.bfloat16


class Compression:
    """The available compressors: `none`, `fp16`, `bf16`."""

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor
