"""Making gradients smaller before they travel, and large again afterwards; for Keras on JAX."""

from __future__ import annotations

from typing import Any


class Compressor:
    """What `compression=` expects: subclass it and give both static methods.

    Tensors are arrays of JAX, in compiled steps those that stand for them, or of NumPy.
    """

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


def _shrink(tensor: Any, name: str) -> tuple[Any, Any]:
    import jax.numpy as jnp

    if tensor.dtype == jnp.dtype(name) or not jnp.issubdtype(tensor.dtype, jnp.floating):
        return tensor, None
    return tensor.astype(jnp.dtype(name)), tensor.dtype


class FP16Compressor(Compressor):
    """Sends floating tensors as float16: half the bytes, largest value 65504. Others pass."""

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        return _shrink(tensor, "float16")

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        return tensor if ctx is None else tensor.astype(ctx)


class BF16Compressor(Compressor):
    """Sends floating tensors as bfloat16: half the bytes, range of float32, 8 bits of precision."""

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        return _shrink(tensor, "bfloat16")

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        return tensor if ctx is None else tensor.astype(ctx)


class Compression:
    """The compressors to choose from."""

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor
