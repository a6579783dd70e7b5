"""Compression of tensors before they are sent, for all frameworks."""

from __future__ import annotations

from typing import Any


class Compressor:
    """Base class of the values of `compression=`. Subclasses implement both static methods.

    Tensors are those of the framework; inside a compiled step, its symbolic tensors.
    """

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        """Returns the tensor to send, and a context for `decompress`."""
        raise NotImplementedError("a Compressor has a static method compress(tensor)")

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        """Returns the tensor in its form before `compress`, up to loss of precision."""
        raise NotImplementedError("a Compressor has a static method decompress(tensor, ctx)")


class NoneCompressor(Compressor):
    """Sends tensors unchanged."""

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        return tensor, None

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        return tensor


class CastCompressor(Compressor):
    """Sends floating-point tensors as `dtype`. Other tensors, and those of `dtype`, are
    unchanged."""

    dtype: Any

    @staticmethod
    def is_floating(dtype: Any) -> bool:
        """Returns whether a dtype of the framework is floating-point. Subclasses implement it."""
        raise NotImplementedError

    @staticmethod
    def cast(tensor: Any, dtype: Any) -> Any:
        """Converts a tensor to `dtype`. Subclasses implement it."""
        raise NotImplementedError

    @classmethod
    def compress(cls, tensor: Any) -> tuple[Any, Any]:
        if tensor.dtype == cls.dtype or not cls.is_floating(tensor.dtype):
            return tensor, None
        return cls.cast(tensor, cls.dtype), tensor.dtype

    @classmethod
    def decompress(cls, tensor: Any, ctx: Any) -> Any:
        return tensor if ctx is None else cls.cast(tensor, ctx)
