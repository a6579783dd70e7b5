"""Making tensors smaller before they travel, and large again afterwards: what is alike for all
frameworks."""

from __future__ import annotations

from typing import Any


class Compressor:
    """What `compression=` expects: subclass it and give both static methods.

    Tensors are those of the framework; inside a compiled step, what stands for them there.
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


class CastCompressor(Compressor):
    """Sends floating tensors as `dtype`. Others pass, and what has this type already."""

    dtype: Any

    @staticmethod
    def is_floating(dtype: Any) -> bool:
        """Of the framework's dtypes, by its subclass."""
        raise NotImplementedError

    @staticmethod
    def cast(tensor: Any, dtype: Any) -> Any:
        """By the framework's subclass."""
        raise NotImplementedError

    @classmethod
    def compress(cls, tensor: Any) -> tuple[Any, Any]:
        if tensor.dtype == cls.dtype or not cls.is_floating(tensor.dtype):
            return tensor, None
        return cls.cast(tensor, cls.dtype), tensor.dtype

    @classmethod
    def decompress(cls, tensor: Any, ctx: Any) -> Any:
        return tensor if ctx is None else cls.cast(tensor, ctx)
