"""The gradients of the ops, for whoever differentiates: a tape, `tf.gradients`, an optimizer.

What depends on the number of ranks is read when the gradient runs, so that a graph outlives a
change of ranks.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from horovod.common.basics import Average, Sum
from horovod.tensorflow._library import ops

_REDUCTION = ("reduce_op", "prescale_factor", "postscale_factor")


def _name(op: Any, what: str = "grad") -> dict[str, Any]:
    """The gradient's name follows the operation's; inside a graph the scope says it already."""
    own = getattr(op, "name", op.type)  # what a tape keeps of an op has no name
    base = _text(op.get_attr("tensor_name")) or own.rpartition("/")[2]
    name = f"{base}_{what}"
    if tf.executing_eagerly():
        return {"tensor_name": name, "blocking": True}
    return {"name": name}


def _text(attribute: Any) -> str:
    return attribute.decode() if isinstance(attribute, bytes) else str(attribute)


def _set(op: Any) -> dict[str, Any]:
    return {"process_set_id": op.get_attr("process_set_id")}


def _where(op: Any) -> dict[str, Any]:
    """Of a collective.

    A tape opens the scopes of the forward pass again, so where those do not count for an operation,
    they must not count for its gradient.
    """
    return {**_set(op), "ignore_name_scope": op.get_attr("ignore_name_scope")}


def _same(op: Any) -> dict[str, Any]:
    """Reduced in the same way."""
    same = {key: _attribute(op, key) for key in _REDUCTION}
    return {**same, **_where(op), **_name(op)}


def _attribute(op: Any, key: str) -> Any:
    value = op.get_attr(key)
    return value.decode() if isinstance(value, bytes) else value


def _averaged(op: Any) -> dict[str, Any]:
    return {"reduce_op": Average, **_where(op), **_name(op)}


@tf.RegisterGradient("HorovodAllreduce")
def _allreduce(op: Any, gradient: Any) -> Any:
    return ops.horovod_allreduce(gradient, **_same(op))


@tf.RegisterGradient("HorovodGroupedAllreduce")
def _grouped_allreduce(op: Any, *gradients: Any) -> Any:
    return ops.horovod_grouped_allreduce(list(gradients), **_same(op))


def _own_rows(op: Any, averages: list[Any]) -> list[Any]:
    """Of what all ranks gave, in their order, the rows of this one."""
    rows = tf.stack([tf.shape(tensor)[0] for tensor in op.inputs])
    counts = ops.horovod_allgather(rows[tf.newaxis], **_where(op), **_name(op, "rows"))
    own = ops.horovod_rank(**_set(op))
    first = tf.reduce_sum(counts[:own], axis=0)
    return [
        average[first[index] : first[index] + rows[index]] for index, average in enumerate(averages)
    ]


@tf.RegisterGradient("HorovodAllgather")
def _allgather(op: Any, gradient: Any) -> Any:
    (rows,) = _own_rows(op, [ops.horovod_allreduce(gradient, **_averaged(op))])
    return rows


@tf.RegisterGradient("HorovodGroupedAllgather")
def _grouped_allgather(op: Any, *gradients: Any) -> Any:
    return _own_rows(op, ops.horovod_grouped_allreduce(list(gradients), **_averaged(op)))


def _on_root(op: Any, averages: list[Any]) -> list[Any]:
    is_root = tf.equal(ops.horovod_rank(), op.get_attr("root_rank"))
    return [tf.where(is_root, average, tf.zeros_like(average)) for average in averages]


@tf.RegisterGradient("HorovodBroadcast")
def _broadcast(op: Any, gradient: Any) -> Any:
    (on_root,) = _on_root(op, [ops.horovod_allreduce(gradient, **_averaged(op))])
    return on_root


@tf.RegisterGradient("HorovodGroupedBroadcast")
def _grouped_broadcast(op: Any, *gradients: Any) -> Any:
    return _on_root(op, ops.horovod_grouped_allreduce(list(gradients), **_averaged(op)))


@tf.RegisterGradient("HorovodAlltoall")
def _alltoall(op: Any, gradient: Any, _: Any) -> Any:
    """What came goes back; rows that were not sent have no influence."""
    returned, _ = ops.horovod_alltoall(gradient, op.outputs[1], **_where(op), **_name(op))
    missing = tf.shape(op.inputs[0])[0] - tf.shape(returned)[0]
    rest = tf.zeros(tf.concat([[missing], tf.shape(returned)[1:]], 0), returned.dtype)
    return tf.concat([returned, rest], 0), None


def _factor(op: Any, dtype: Any) -> Any:
    factor = float(_attribute(op, "prescale_factor")) * float(_attribute(op, "postscale_factor"))
    size = ops.horovod_size(**_set(op)) if op.get_attr("reduce_op") == Sum else 1
    return tf.cast(factor, dtype) * tf.cast(size, dtype)


@tf.RegisterGradient("HorovodReducescatter")
def _reducescatter(op: Any, gradient: Any) -> Any:
    scaled = gradient * _factor(op, gradient.dtype)
    return ops.horovod_allgather(scaled, **_where(op), **_name(op))


@tf.RegisterGradient("HorovodGroupedReducescatter")
def _grouped_reducescatter(op: Any, *gradients: Any) -> Any:
    scaled = [gradient * _factor(op, gradient.dtype) for gradient in gradients]
    return ops.horovod_grouped_allgather(scaled, **_where(op), **_name(op))


for _answer in (
    "HorovodJoin",
    "HorovodRank",
    "HorovodLocalRank",
    "HorovodSize",
    "HorovodLocalSize",
    "HorovodProcessSetIncluded",
):
    tf.no_gradient(_answer)
