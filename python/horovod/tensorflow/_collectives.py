"""Reductions of tensors, variables and sparse gradients, with compression."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from horovod.common._arguments import check_compression, group_of, reduce_op
from horovod.common._reductions import check_ranks
from horovod.common.basics import Average
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.tensorflow._slices import check_slices, reduced_slices
from horovod.tensorflow.compression import Compression, Compressor
from horovod.tensorflow.mpi_ops import (
    _allreduce,
    _grouped_allreduce,
    _grouped_reducescatter,
    _reducescatter,
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
    """Returns `tensor` reduced over all ranks, by default their average. Differentiable.

    Args:
        tensor: a tensor or variable of equal shape on all ranks; or tf.IndexedSlices, with or
            without `dense_shape`, with any number of rows on each rank. Indices and values are
            gathered, so the result is IndexedSlices and may contain a row several times, except in
            averages of integers. Only Sum and Average accept IndexedSlices.
        average: deprecated, use `op`.
        device_dense, device_sparse: placement of the nodes.
        compression: compresses the tensor before sending.
        op: Average (default), Sum, Adasum, Min, Max or Product. Averages of integers truncate
            toward zero.
        prescale_factor, postscale_factor: multiply before and after the reduction.
        ignore_name_scope: names the operation by the last part of the node's name.
        process_set: the ranks that take part.

    Raises:
        NotImplementedError: IndexedSlices with another op or with factors; Adasum if the number of
            ranks is not a power of two.
        TypeError: IndexedSlices of bool, complex or another dtype that allgather does not support.
    """
    op = reduce_op(op, average)
    check_ranks(op, process_set)
    if isinstance(tensor, tf.IndexedSlices):
        check_slices(tensor, op, prescale_factor, postscale_factor)
        with on_device(device_sparse):
            return reduced_slices(tensor, op, name, process_set, ignore_name_scope)
    check_compression("allreduce", compression)
    with on_device(device_dense):
        compressed, ctx = compression.compress(as_tensor(tensor))
        reduced = _allreduce(
            compressed, name, op, prescale_factor, postscale_factor, ignore_name_scope, process_set
        )
        return compression.decompress(reduced, ctx)


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
    """Does `allreduce` of several tensors; those of one dtype are one operation. Differentiable.

    `tensors`: each as in `allreduce`; IndexedSlices at the same positions on all ranks. Each of the
    IndexedSlices is gathered by its own operations. Other arguments as in `allreduce`.
    Returns: a list of results, in the same order; [] for no tensors.
    Raises: as `allreduce`; when it runs, the errors in the module `mpi_ops`.
    """
    op = reduce_op(op, average)
    check_ranks(op, process_set)
    check_compression("grouped_allreduce", compression)
    results = list(group_of("grouped_allreduce", tensors))
    sparse = [p for p, tensor in enumerate(results) if isinstance(tensor, tf.IndexedSlices)]
    for place in sparse:
        check_slices(results[place], op, prescale_factor, postscale_factor)
    dense = [place for place in range(len(results)) if place not in set(sparse)]
    with on_device(device_dense):
        reduced = _compressed(
            compression,
            [results[place] for place in dense],
            lambda some: _grouped_allreduce(
                some, name, op, prescale_factor, postscale_factor, ignore_name_scope, process_set
            ),
        )
    for place, tensor in zip(dense, reduced, strict=True):
        results[place] = tensor
    with on_device(device_sparse):
        for place in sparse:
            own = name and f"{name}_{place}"
            results[place] = reduced_slices(results[place], op, own, process_set, ignore_name_scope)
    return results


def _compressed(
    compression: type[Compressor],
    tensors: Sequence[Any],
    run: Callable[[list[Any]], Sequence[Any]],
) -> list[Any]:
    """What `run` gives for the tensors; compressed on their way."""
    both = [compression.compress(as_tensor(tensor)) for tensor in tensors]
    results = run([tensor for tensor, _ in both])
    return [
        compression.decompress(result, ctx) for result, (_, ctx) in zip(results, both, strict=True)
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
    """Returns this rank's rows of the result of `allreduce`. Differentiable.

    `tensor`: of equal shape [rows, ...] on all ranks, not a scalar. `op`: Average or Sum.
    `device_dense`: placement of the nodes. Other arguments as in `allreduce`.
    Returns: a tensor [rows / ranks, ...]; the first (rows modulo ranks) ranks get one row more.
    Raises: when it runs, AbortedError for another op, InvalidArgumentError for a scalar, and the
    other errors in the module `mpi_ops`.
    """
    check_compression("reducescatter", compression)
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
    """Does `reducescatter` of several tensors; those of one dtype are one operation.
    Differentiable.

    `tensors`: each of equal shape [rows, ...] on all ranks; rows may differ from tensor to tensor.
    Returns: a list of this rank's rows of each tensor, in the same order; [] for no tensors.
    Raises: as `reducescatter`.
    """
    check_compression("grouped_reducescatter", compression)
    with on_device(device_dense):
        return _compressed(
            compression,
            group_of("grouped_reducescatter", tensors),
            lambda some: _grouped_reducescatter(
                some, None, op, False, process_set, prescale_factor, postscale_factor
            ),
        )
