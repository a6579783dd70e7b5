"""Reducing what users have: tensors, variables, sparse gradients; compressed on their way."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from horovod.common._reductions import check_ranks
from horovod.common.basics import Average, Sum
from horovod.common.process_sets import ProcessSet, global_process_set, process_set_id
from horovod.tensorflow.compression import Compression, Compressor
from horovod.tensorflow.mpi_ops import (
    _allreduce,
    _grouped_allreduce,
    _grouped_reducescatter,
    _reducescatter,
    allgather,
    handle_average_backwards_compatibility,
    size_op,
)
from horovod.tensorflow.util import as_tensor, on_device


def allreduce(
    tensor: Any,
    average: bool | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: type[Compressor] = Compression.none,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    ignore_name_scope: bool = False,
) -> Any:
    """`tensor` reduced over all ranks; by default their average. Differentiable.

    `tensor`: a tensor or variable of equal shape on all ranks, or tf.IndexedSlices, whose indices
    and values are gathered instead, and which only Sum and Average take. Averages of integers
    truncate toward zero. `average`: deprecated, give `op`. `prescale_factor`, `postscale_factor`:
    multiply before and after. `device_dense`, `device_sparse`: where the nodes are placed.
    `ignore_name_scope`: the operation's name is the last part of the node's.
    Raises: NotImplementedError for IndexedSlices with another op or with factors, and for Adasum on
    a number of ranks that is no power of two.
    """
    op = handle_average_backwards_compatibility(op, average)
    check_ranks(op, process_set)
    if isinstance(tensor, tf.IndexedSlices):
        if op not in (Sum, Average) or (prescale_factor, postscale_factor) != (1.0, 1.0):
            raise NotImplementedError(
                "IndexedSlices can be reduced by Sum and Average only, without factors: "
                "give sparse_as_dense=True, or tf.convert_to_tensor(...) of them"
            )
        with on_device(device_sparse):
            return _gather_slices(tensor, op, name, process_set, ignore_name_scope)
    with on_device(device_dense):
        compressed, ctx = compression.compress(as_tensor(tensor))
        reduced = _allreduce(
            compressed, name, op, prescale_factor, postscale_factor, ignore_name_scope, process_set
        )
        return compression.decompress(reduced, ctx)


def _gather_slices(
    slices: Any, op: int, name: str | None, process_set: ProcessSet, ignore_name_scope: bool
) -> Any:
    def gather(tensor: Any, what: str) -> Any:
        own = None if name is None else f"{name}_{what}"
        if own is None and tf.executing_eagerly():
            own = f"HorovodAllgather_{what}"  # both in one call: they must not have one name
        return allgather(tensor, own, ignore_name_scope, process_set)

    values = gather(slices.values, "values")
    indices = gather(slices.indices, "indices")
    if op == Average:
        size = tf.cast(size_op(process_set_id(process_set)), values.dtype)
        divide = tf.divide if values.dtype.is_floating else tf.truncatediv
        values = divide(values, size)
    return tf.IndexedSlices(values, indices, dense_shape=slices.dense_shape)


def grouped_allreduce(
    tensors: Sequence[Any],
    average: bool | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: type[Compressor] = Compression.none,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    ignore_name_scope: bool = False,
    name: str | None = None,
) -> list[Any]:
    """`allreduce` of several tensors of one dtype, as one operation. Differentiable.

    `tensors`: each of equal shape on all ranks; IndexedSlices are made dense, so there is nothing
    for `device_sparse` to place. Other arguments as of `allreduce`.
    Returns: the reduced tensors, of the same shapes, in the same order; [] of none.
    Raises: NotImplementedError for Adasum on a number of ranks that is no power of two; errors of
    TensorFlow when it runs, as the module `mpi_ops` says.
    """
    op = handle_average_backwards_compatibility(op, average)
    check_ranks(op, process_set)
    if not tensors:
        return []
    with on_device(device_dense):
        compressed = [compression.compress(as_tensor(tensor)) for tensor in tensors]
        reduced = _grouped_allreduce(
            [tensor for tensor, _ in compressed],
            name,
            op,
            prescale_factor,
            postscale_factor,
            ignore_name_scope,
            process_set,
        )
        return [
            compression.decompress(tensor, ctx)
            for tensor, (_, ctx) in zip(reduced, compressed, strict=True)
        ]


def reducescatter(
    tensor: Any,
    device_dense: str = "",
    compression: type[Compressor] = Compression.none,
    op: int = Average,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    ignore_name_scope: bool = False,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Any:
    """This rank's rows of what `allreduce` would give. Differentiable.

    `tensor`: of equal shape [rows, ...] on all ranks, not a scalar. `op`: Average or Sum.
    `device_dense`: where the nodes are placed. Other arguments as of `allreduce`.
    Returns: a tensor [rows / ranks, ...]; the first (rows modulo ranks) ranks get one row more.
    Raises: when it runs, AbortedError for another op, InvalidArgumentError for a scalar, and the
    other errors of the module `mpi_ops`.
    """
    with on_device(device_dense):
        compressed, ctx = compression.compress(as_tensor(tensor))
        reduced = _reducescatter(
            compressed, name, op, ignore_name_scope, process_set, prescale_factor, postscale_factor
        )
        return compression.decompress(reduced, ctx)


def grouped_reducescatter(
    tensors: Sequence[Any],
    device_dense: str = "",
    compression: type[Compressor] = Compression.none,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> list[Any]:
    """`reducescatter` of several tensors of one dtype, as one operation. Differentiable.

    `tensors`: each of equal shape [rows, ...] on all ranks; rows may differ from tensor to tensor.
    Returns: of each this rank's rows, in the same order; [] of none.
    Raises: as `reducescatter`.
    """
    if not tensors:
        return []
    with on_device(device_dense):
        compressed = [compression.compress(as_tensor(tensor)) for tensor in tensors]
        reduced = _grouped_reducescatter(
            [tensor for tensor, _ in compressed],
            None,
            op,
            False,
            process_set,
            prescale_factor,
            postscale_factor,
        )
        return [
            compression.decompress(tensor, ctx)
            for tensor, (_, ctx) in zip(reduced, compressed, strict=True)
        ]
