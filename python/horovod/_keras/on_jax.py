"""Keras on JAX: gradients are reduced in a callback on the host."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from horovod._keras import values
from horovod._keras.binding import Binding
from horovod._keras.options import Options
from horovod._keras.reducers import Helper, Reducer, helper_of
from horovod.common._jax_compression import Compression


class JaxReducer(Reducer):
    """For Keras on JAX: a callback on the host, in the order of the program."""

    def reduce(self, gradients: Sequence[Any], name: str) -> Sequence[Any]:
        import jax
        from jax.experimental import io_callback

        compressor = self.how.compression
        compressed = [compressor.compress(gradient) for gradient in gradients]
        sent = [tensor for tensor, _ in compressed]
        shapes = [jax.ShapeDtypeStruct(tensor.shape, tensor.dtype) for tensor in sent]
        received = io_callback(self._on_host(name), shapes, *sent, ordered=True)
        return [
            compressor.decompress(tensor, ctx)
            for tensor, (_, ctx) in zip(received, compressed, strict=True)
        ]

    def _on_host(self, name: str) -> Callable[..., list[Any]]:
        how = self.how

        def reduce(*gradients: Any) -> list[Any]:
            arrays = [values.as_array(gradient) for gradient in gradients]
            values.allreduce(arrays, name, **how.operation())
            return arrays

        return reduce


class _OnJax(Binding):
    def helper(self, options: Options) -> Helper:
        return helper_of(options, JaxReducer, Compression)


BINDING = _OnJax()
