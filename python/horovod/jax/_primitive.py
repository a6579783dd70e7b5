"""The one primitive: a collective operation on several arrays, and its rules for JAX.

The arrays are the leaves of a pytree. They go as one call, so a program of many leaves cannot
deadlock: XLA starts all of them or none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from horovod.common._extension import core
from horovod.common.basics import Adasum, Average, Sum
from horovod.jax import _host, _library
from horovod.jax._how import How
from horovod.jax._internals import (
    ABSTRACT_TOKEN,
    EFFECT,
    Primitive,
    ShapedArray,
    ad,
    batching,
    mlir,
    zero_tangent,
)

collective = Primitive("horovod")
collective.multiple_results = True


def run(arrays: Sequence[Any], how: How) -> list[Any]:
    """Runs the operation or, in a function that is being traced, makes it part of the program."""
    return list(collective.bind(*arrays, how=how))


@collective.def_impl
def _on_values(*arrays: Any, how: How) -> list[Any]:
    return _host.run(arrays, how)


@collective.def_effectful_abstract_eval
def _types(*arrays: Any, how: How) -> tuple[list[Any], set[Any]]:
    shapes = [how.result_shape(array.shape, place) for place, array in enumerate(arrays)]
    results = [ShapedArray(shape, array.dtype) for shape, array in zip(shapes, arrays, strict=True)]
    return results, {EFFECT}


def _lower(context: Any, *operands: Any, how: How) -> Any:
    """Into a custom call that takes the token of the last operation and returns its own."""
    with_tokens = context.replace(
        avals_in=[ABSTRACT_TOKEN, *context.avals_in],
        avals_out=[ABSTRACT_TOKEN, *context.avals_out],
    )
    lowering = jax.ffi.ffi_lowering(_library.TARGET, has_side_effect=True)
    token = context.tokens_in.get(EFFECT)
    token, *results = lowering(with_tokens, token, *operands, **_attributes(how))
    context.set_tokens_out(context.tokens_in.update_tokens(mlir.TokenSet({EFFECT: token})))
    return results


def _attributes(how: How) -> dict[str, Any]:
    """As adapters/jax/arguments.cc reads them."""
    return {
        "kind": np.int64(how.kind),
        "op": np.int64(how.op),
        "prescale": np.float64(how.prescale),
        "postscale": np.float64(how.postscale),
        "root": np.int64(how.root),
        "process_set": np.int64(how.process_set),
        "name": how.name,
    }


def _refuse_device(context: Any, *operands: Any, how: How) -> Any:
    raise NotImplementedError(
        "horovod.jax compiles operations for CPUs only: call them outside jax.jit, which copies "
        'the arrays to the host, or compile for the CPU (jax.config.update("jax_platforms", "cpu"))'
    )


mlir.register_lowering(collective, _refuse_device)
mlir.register_lowering(collective, _lower, platform="cpu")


def _check_derivative(how: How) -> None:
    if not how.is_linear():
        raise NotImplementedError(
            "horovod.jax has no derivative of a reduction by Min, Max, Product or Adasum: use "
            "hvd.Sum or hvd.Average, or jax.lax.stop_gradient"
        )


def _jvp(primals: Sequence[Any], tangents: Sequence[Any], *, how: How) -> tuple[Any, Any]:
    """One operation for the values, and one for the tangents that are not zero."""
    results = run(primals, how)
    places = [place for place, tangent in enumerate(tangents) if type(tangent) is not ad.Zero]
    moved: list[Any] = [zero_tangent(result) for result in results]
    if not places:
        return results, moved
    _check_derivative(how)
    for place in places:
        expected = how.result_shape(primals[place].shape, place)
        if results[place].shape != expected:
            raise NotImplementedError(
                "horovod.jax has no derivative of an allgather of different numbers of rows"
            )
    own = how._replace(rows=tuple(how.rows[place] for place in places) if how.rows else ())
    for place, tangent in zip(places, run([tangents[p] for p in places], own), strict=True):
        moved[place] = tangent
    return results, moved


ad.primitive_jvps[collective] = _jvp


def _transpose(cotangents: Sequence[Any], *arrays: Any, how: How) -> list[Any]:
    """The derivative of the sum of the losses of all ranks."""
    _check_derivative(how)
    given = [ad.instantiate_zeros(cotangent) for cotangent in cotangents]
    results = _transposed(given, [_shape(array) for array in arrays], how)
    return [
        result if ad.is_undefined_primal(array) else None
        for result, array in zip(results, arrays, strict=True)
    ]


def _shape(array: Any) -> tuple[int, ...]:
    return tuple(array.aval.shape if ad.is_undefined_primal(array) else array.shape)


def _transposed(given: list[Any], shapes: Sequence[tuple[int, ...]], how: How) -> list[Any]:
    if how.kind == core.BROADCAST:
        sums = run(given, how._replace(kind=core.ALLREDUCE, op=Sum))
        is_root = core.world().rank == how.root
        return sums if is_root else [jnp.zeros_like(one) for one in sums]
    if how.kind == core.ALLGATHER:
        return run(given, how._replace(kind=core.REDUCESCATTER, op=Sum, rows=()))
    if how.kind == core.REDUCESCATTER:
        rows = tuple(shape[0] for shape in shapes)
        gathered = run(
            given, how._replace(kind=core.ALLGATHER, rows=rows, prescale=1.0, postscale=1.0)
        )
        scale = how.prescale * how.postscale / (how.size if how.op == Average else 1)
        return gathered if scale == 1.0 else [one * scale for one in gathered]
    return run(given, how)  # allreduce, alltoall in equal parts: their own transposes


ad.primitive_transposes[collective] = _transpose


def _batch(arrays: Sequence[Any], dims: Sequence[Any], *, how: How) -> tuple[Any, Any]:
    """The whole batch goes as one operation. All ranks must map as many elements."""
    if how.kind in (core.ALLREDUCE, core.BROADCAST):
        if how.op == Adasum and how.kind == core.ALLREDUCE:
            raise NotImplementedError(
                "horovod.jax: Adasum combines whole arrays, and cannot be mapped by jax.vmap"
            )
        return run(arrays, how), dims
    batched = [
        array if dim is None else jnp.moveaxis(array, dim, 1)
        for array, dim in zip(arrays, dims, strict=True)
    ]
    return run(batched, how), [dim if dim is None else 1 for dim in dims]


batching.primitive_batchers[collective] = _batch
