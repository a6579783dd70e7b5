"""Making gradients smaller before they travel, and large again afterwards."""

from __future__ import annotations

from typing import Any

import tensorflow as tf


class Compressor:
    """What `compression=` expects: subclass it and give both static methods."""

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        """Returns the tensor to send, and what `decompress` needs to know."""
        raise NotImplementedError("a Compressor has a static method compress(tensor)")

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        """Returns the tensor as it was before `compress`, as well as it can."""
        raise NotImplementedError("a Compressor has a static method decompress(tensor, ctx)")


class NoneCompressor(Compressor):
    """Sends tensors as they are."""

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        return tensor, None

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        return tensor


def _shrink(tensor: Any, dtype: Any) -> tuple[Any, Any]:
    if tensor.dtype == dtype or not tensor.dtype.is_floating:
        return tensor, None
    return tf.cast(tensor, dtype), tensor.dtype


class FP16Compressor(Compressor):
    """Sends floating tensors as float16: half the bytes, largest value 65504. Others pass."""

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        return _shrink(tensor, tf.float16)

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        return tensor if ctx is None else tf.cast(tensor, ctx)


class BF16Compressor(Compressor):
    """Sends floating tensors as bfloat16: half the bytes, range of float32, 8 bits of precision."""

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        return _shrink(tensor, tf.bfloat16)

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        return tensor if ctx is None else tf.cast(tensor, ctx)


class Compression:
    """The compressors to choose from."""

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor
