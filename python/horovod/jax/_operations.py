"""The operations, on pytrees of arrays: eagerly, or as part of a program that JAX traces.

Eager calls block and return arrays on the devices of their inputs. In a traced function (`jax.jit`,
`jax.grad`, `jax.lax.scan`, ...) a call becomes part of the program. Both run in the order of the
program on this rank. All ranks must make the same calls in the same order.

Errors. Arguments that are wrong on this rank: ValueError, before anything is sent. Eager calls:
HorovodInternalError if a rank is lost or the job has ended, and HorovodMismatchError, which is also
a ValueError, if ranks disagree. In compiled programs JAX raises its own error with the same text
(`jax.errors.JaxRuntimeError`) in the call or when a result is used.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from horovod.common._arguments import (
    check_compression,
    check_op,
    check_op_of,
    check_reducible,
    check_root,
    check_rows,
    factor,
    group_of,
    refused_type,
)
from horovod.common._extension import core
from horovod.common._reductions import check_ranks
from horovod.common.basics import Average, Sum
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.jax import _host, _primitive
from horovod.jax._how import How, make
from horovod.jax._types import BACKEND
from horovod.jax.compression import Compression

Tree = Any


def allreduce(
    tensor: Tree,
    name: str | None = None,
    op: int = Average,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    compression: Any = Compression.none,
    process_set: ProcessSet = global_process_set,
) -> Tree:
    """Reduces each array over all ranks of `process_set`.

    Differentiable for Sum and Average: the derivative is the same operation on the cotangents.

    Args:
        tensor: a pytree of arrays or numbers; structure, shapes and types equal on all ranks.
        name: by which ranks match the operation, a constant of the program. Calls without one are
            matched by their order.
        op: Average, Sum, Min, Max, Product or Adasum. An Average of integers is truncated.
        prescale_factor, postscale_factor: multiply before and after the reduction; numbers.
        compression: for floating-point arrays, see `Compression`.

    Returns: a pytree of the same structure, shapes and types.
    Raises: see the module; NotImplementedError for Adasum on a number of ranks that is not a power
        of two.
    """
    check_op(op)
    check_ranks(op, process_set)
    factors = (prescale_factor, postscale_factor)
    how = _reducing("allreduce", core.ALLREDUCE, name, op, factors, process_set)
    return _reduce("allreduce", tensor, how, compression)


def grouped_allreduce(tensors: Sequence[Any], *args: Any, **options: Any) -> list[Any]:
    """Does `allreduce` of a list of arrays as one operation per dtype, and returns a list.

    As every operation here takes a pytree, this is `allreduce` with a check of its argument.
    """
    return list(allreduce(list(group_of("grouped_allreduce", tensors)), *args, **options))


def reducescatter(
    tensor: Tree,
    name: str | None = None,
    op: int = Average,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    compression: Any = Compression.none,
    process_set: ProcessSet = global_process_set,
) -> Tree:
    """Returns this rank's rows of the result of `allreduce`. Differentiable.

    `tensor`: arrays [rows, ...], equal on all ranks. `op`: Average or Sum. Other arguments and
    errors as in `allreduce`.
    Returns: arrays [rows / ranks, ...]; the first (rows modulo ranks) ranks get one row more.
    """
    check_op(op)
    check_op_of("reducescatter", op, (Average, Sum))
    factors = (prescale_factor, postscale_factor)
    how = _reducing("reducescatter", core.REDUCESCATTER, name, op, factors, process_set)
    return _reduce("reducescatter", tensor, how, compression)


def grouped_reducescatter(tensors: Sequence[Any], *args: Any, **options: Any) -> list[Any]:
    """Does `reducescatter` of a list of arrays as one operation per dtype, and returns a list."""
    return list(reducescatter(list(group_of("grouped_reducescatter", tensors)), *args, **options))


def allgather(
    tensor: Tree, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Tree:
    """Concatenates the arrays of all ranks along the first dimension, in the order of ranks.

    Differentiable. `tensor`: a pytree of arrays [rows, ...]. In an eager call rows may differ
    between ranks. In a traced function they must be equal, as the program has static shapes.
    Returns: arrays [rows of all ranks, ...].
    """
    how = make("allgather", core.ALLGATHER, name, process_set)
    return _move("allgather", tensor, how, with_rows=True)


def grouped_allgather(tensors: Sequence[Any], *args: Any, **options: Any) -> list[Any]:
    """Does `allgather` of a list of arrays as one operation per dtype, and returns a list."""
    return list(allgather(list(group_of("grouped_allgather", tensors)), *args, **options))


def broadcast(
    tensor: Tree,
    root_rank: int = 0,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Tree:
    """Returns the arrays of `root_rank`, a global rank, on all ranks. Differentiable.

    `tensor`: a pytree of arrays; structure, shapes and types equal on all ranks.
    """
    check_root("broadcast", root_rank)
    how = make("broadcast", core.BROADCAST, name, process_set, root=int(root_rank))
    return _move("broadcast", tensor, how)


def alltoall(
    tensor: Tree,
    splits: Any = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Tree:
    """Sends a part of the rows to each rank, and concatenates the received parts by rank.

    Args:
        tensor: a pytree of arrays [rows, ...].
        splits: how many rows each rank gets, in an eager call with one array. None: equal parts,
            differentiable.

    Returns: a pytree as `tensor`; with `splits`, the array and the rows received from each rank.
    """
    how = make("alltoall", core.ALLTOALL, name, process_set)
    if splits is None:
        _check_parts(tensor, how.size)
        return _move("alltoall", tensor, how, with_rows=True)
    array = _sendable("alltoall", jnp.asarray(tensor))
    if _is_traced([array]):
        raise ValueError(
            "alltoall: splits are for eager calls; in a traced function the shapes are static: pad "
            "the parts to equal numbers of rows"
        )
    received, rows = _host.alltoall(array, [int(one) for one in splits], how)
    return received, rows


def barrier(process_set: ProcessSet = global_process_set) -> None:
    """Returns when all ranks of `process_set` have called it.

    In a traced function, the operations after it in the program wait for it; computations do not.
    """
    _primitive.run([], make("barrier", core.BARRIER, None, process_set))


def join() -> int:
    """Declares that this rank has no more data, and blocks until all ranks of the job have joined.

    Until then this rank takes part in the allreduces of the other ranks with a neutral value, such
    as zero for sums. Average still divides by the number of all ranks. Other operations fail on the
    ranks that call them. Eager only.
    Returns: the rank that joined last, the same on all ranks.
    """
    return _host.join()


def _arrays(tree: Tree) -> tuple[list[Any], Any]:
    leaves, structure = jax.tree.flatten(tree)
    return [jnp.asarray(leaf) for leaf in leaves], structure


def _is_traced(arrays: Sequence[Any]) -> bool:
    return any(isinstance(array, jax.core.Tracer) for array in arrays)


def _reducing(
    doing: str,
    kind: int,
    name: str | None,
    op: int,
    factors: tuple[float, float],
    process_set: ProcessSet,
) -> How:
    return make(
        doing,
        kind,
        name,
        process_set,
        op=int(op),
        prescale=factor(doing, "prescale_factor", factors[0]),
        postscale=factor(doing, "postscale_factor", factors[1]),
    )


def _reduce(doing: str, tree: Tree, how: How, compression: Any) -> Tree:
    check_compression(doing, compression)
    arrays, structure = _arrays(tree)
    both = [compression.compress(array) for array in arrays]
    for array, _ in both:
        if array.dtype.name not in BACKEND.types:
            raise refused_type(doing, BACKEND, array)
        check_reducible(doing, BACKEND, array, how.op)
        if how.kind == core.REDUCESCATTER:
            check_rows(doing, array.ndim)
    results = _primitive.run([array for array, _ in both], how) if both else []
    restored = [
        compression.decompress(result, context)
        for result, (_, context) in zip(results, both, strict=True)
    ]
    return jax.tree.unflatten(structure, restored)


def _move(doing: str, tree: Tree, how: How, with_rows: bool = False) -> Tree:
    arrays, structure = _arrays(tree)
    for array in arrays:
        if with_rows and array.ndim == 0:
            raise ValueError(f"{doing}: a scalar has no rows; pass at least a vector")
    sent = [_sendable(doing, array) for array in arrays]
    results = _primitive.run(sent, how) if sent else []
    restored = [
        result if result.dtype == array.dtype else _as_type(result, array.dtype)
        for result, array in zip(results, arrays, strict=True)
    ]
    return jax.tree.unflatten(structure, restored)


#: What is sent for a type that the runtime does not have: one with as many bits.
_SAME_BITS = {"uint32": jnp.int32, "uint64": jnp.int64}


def _sendable(doing: str, array: Any) -> Any:
    name = array.dtype.name
    if name in BACKEND.types:
        return array
    if name in _SAME_BITS:
        return _as_type(array, _SAME_BITS[name])
    if name.startswith("float8_"):
        return _as_type(array, jnp.uint8)
    raise refused_type(doing, BACKEND, array)


def _as_type(array: Any, dtype: Any) -> Any:
    return jax.lax.bitcast_convert_type(array, dtype)


def _check_parts(tree: Tree, size: int) -> None:
    for leaf in jax.tree.leaves(tree):
        shape = jnp.shape(leaf)
        if shape and shape[0] % size:
            raise ValueError(
                f"alltoall: {shape[0]} rows cannot be split into equal parts for {size} ranks; "
                "pass splits, or pad the array"
            )
